// What a row of the tree and of the timeline have in common.

import type { StepRow, StepState, WaitsFor } from "./api";
import { whole } from "./format";
import { Icon, StateIcon, wordOf } from "./icons";
import { oneLine } from "./text";
import { LIVE, shortType, type Tally, type TreeRow } from "./tree";
import { Foreign } from "./ui";
import { waitText } from "./waits";

export const ORDER: readonly StepState[] = [
  "succeeded", "defaulted", "skipped", "failed", "waiting", "running", "interrupted", "open", "cancelled",
];
const INDENT = 18;

export function Twist({ row, onFold }: { row: TreeRow; onFold: (path: string, open: boolean) => void }) {
  return (
    <>
      <span style={{ width: `${row.depth * INDENT}px`, flex: "none" }} />
      <span
        class={row.open ? "twist open" : "twist"}
        aria-hidden="true"
        onClick={(event) => {
          if (row.children === 0) return;
          event.stopPropagation();
          onFold(row.path, !row.open);
        }}
      >
        {row.children > 0 && <Icon of="chevron" />}
      </span>
    </>
  );
}

/** How the members of a group stand, as a bar and in numbers. */
export function TallyBar({ tally }: { tally: Tally }) {
  const all = ORDER.reduce((sum, state) => sum + (tally[state] ?? 0), 0);
  if (all === 0) return null;
  const said = ORDER.filter((state) => tally[state]).map((state) => `${tally[state]} ${wordOf(state)}`).join(", ");
  return (
    <span class="bar" role="img" aria-label={said} title={said}>
      {ORDER.filter((state) => tally[state]).map((state) => (
        <i key={state} class={`s-${state}`} style={{ width: `${(100 * tally[state]!) / all}%` }} />
      ))}
    </span>
  );
}

/** `19 of 200, 3 failed`: how many have ended. */
export function ended(tally: Tally, size: number | null | undefined): string {
  let all = 0;
  let open = 0;
  for (const state of ORDER) {
    const n = tally[state] ?? 0;
    all += n;
    if (state === "running" || state === "waiting" || state === "open" || state === "interrupted") open += n;
  }
  return endedText(all - open, Math.max(all, size ?? 0), tally["failed"] ?? 0);
}

export function endedText(ended: number, all: number, failed: number): string {
  return `${whole(ended)} of ${whole(all)}${failed > 0 ? `, ${whole(failed)} failed` : ""}`;
}

export function StepName({ step, name }: { step: StepRow; name: string }) {
  return (
    <>
      <StateIcon state={step.state} />
      <span class="unseen">{wordOf(step.state)}: </span>
      <span class="name cut"><Foreign text={name} /></span>
    </>
  );
}

/** What is worth to be said beside the name of a step; `wait`: what it waits for. */
export function remark(step: StepRow, wait: WaitsFor | undefined, now: number): { text: string; bad: boolean } {
  // That a moment is waited for says less than the error that is the reason for it.
  const waits = wait !== undefined && LIVE.has(step.state) && (wait.kind !== "time" || (!step.error && (wait.until ?? 0) > now));
  if (waits) return { text: waitText(wait, now), bad: false };
  if (step.error) {
    const kind = step.error_type ? `${shortType(step.error_type)}: ` : "";
    return { text: oneLine(kind + step.error, 240), bad: step.state === "failed" };
  }
  if (step.given_by) return { text: `given by ${step.given_by}`, bad: false };
  if (step.handled?.length) return { text: `got over: ${oneLine(step.handled[0]!.error, 160)}`, bad: false };
  if (step.exit_code) return { text: `exit code ${step.exit_code}`, bad: false };
  if (step.attempts > 1) return { text: `${step.attempts} attempts`, bad: false };
  if (step.undone) return { text: step.undone.error ? "not undone" : "undone", bad: Boolean(step.undone.error) };
  return { text: "", bad: false };
}
