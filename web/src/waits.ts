// What runs and steps wait for. Pure.

import type { WaitsFor } from "./api";
import { relative } from "./format";

/** What is waited for, in a few words. */
export function waitText(wait: WaitsFor, now: number): string {
  const until = wait.until ? ` (${relative(wait.until, now)})` : "";
  switch (wait.kind) {
    case "answer":
      return `asks: ${wait.what}`;
    case "signal":
      return `waits for the signal ${wait.what}${until}`;
    case "person":
      return `needs: ${wait.what}`;
    case "time":
      return `waits: ${wait.what}${until}`;
    case "claim":
      return `waits for ${wait.what}${wait.whom ? `, behind ${wait.whom}` : ""}`;
    case "unpause":
      return wait.whom ? `paused by ${wait.whom}` : "paused";
    default:
      return String((wait as WaitsFor).what); // of a later version
  }
}

/** What each step waits for, by its path; of several the first. */
export function waitsByPath(waits: readonly WaitsFor[]): ReadonlyMap<string, WaitsFor> {
  const found = new Map<string, WaitsFor>();
  for (const wait of waits) if (wait.path !== "" && !found.has(wait.path)) found.set(wait.path, wait);
  return found;
}
