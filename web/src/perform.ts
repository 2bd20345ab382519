// An action goes to the server, and what came of it is said.

import { relative } from "./format";
import type { RunStore } from "./run_store";
import { Refused, type Verb } from "./source";
import { notify } from "./ui";

const NEEDS_A_DRIVER: ReadonlySet<Verb> = new Set(["answer", "signal", "guide", "complete", "skip", "retry", "work"]);

/** Do it, and say so; what the server refuses is said in its words. The answer, if it was done. */
export async function perform(
  store: RunStore,
  verb: Verb,
  body: object,
  done: string,
): Promise<{ readonly [name: string]: unknown } | null> {
  try {
    const said = await store.source.act(store.id, verb, body);
    const idle = said["driven"] === false && NEEDS_A_DRIVER.has(verb);
    notify(idle ? `${done} No process is running the run: resume it to continue.` : done, true);
    void store.loadAfter();
    return said;
  } catch (error) {
    notify(refusal(error), false);
    if (error instanceof Refused && error.status === 409) void store.loadAfter();
    return null;
  }
}

/** What the server refuses, in words. */
export function refusal(error: unknown): string {
  if (!(error instanceof Refused)) return `The server could not be reached: ${String(error)}`;
  const { by, at, answer } = error.fields;
  if (error.status !== 409 || answer === undefined) return error.message;
  const who = typeof by === "string" && by ? by : "somebody";
  const when = typeof at === "number" ? `, ${relative(at, Date.now() / 1000)}` : "";
  return `${who} was first${when}, and answered ${JSON.stringify(answer)}.`;
}
