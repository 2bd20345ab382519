import type { StepRow, StepState } from "../src/api";

/** A step for tests: what is not said is as of a small one that succeeded. */
export function step(path: string, state: StepState = "succeeded", more: Partial<StepRow> = {}): StepRow {
  return {
    path,
    name: path.slice(path.lastIndexOf("/") + 1),
    step_type: "python",
    state,
    attempts: 1,
    started_at: 100,
    ended_at: 101,
    duration_ms: 1000,
    error: null,
    error_type: null,
    ...more,
  };
}
