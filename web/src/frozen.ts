// A report: a run as it was, in the page itself.

import type { FlowGraph, RunDetail, StepDetail, StepRow } from "./api";
import { Refused, type Source } from "./source";

export interface Frozen {
  readonly format: number;
  readonly made_at: number;
  readonly run: RunDetail;
  readonly graph?: FlowGraph | null;
  /** What is known of a step besides its row, where there is something. */
  readonly steps: { readonly [path: string]: Partial<StepDetail> };
}

/** What a report has in it; null: this page is none. */
export function frozenIn(page: Document): Frozen | null {
  const text = page.getElementById("handrail-data")?.textContent;
  return text ? (JSON.parse(text) as Frozen) : null;
}

const BLANK: Omit<StepDetail, keyof StepRow> = {
  output: null, traceback: null, turns: [], turns_before: 0, text: "", reasoning: "", activity: "", ends: {}, stdout: "", stderr: "", tries: [], incidents: [],
  session: null, backend: null, model: null, answer: null,
};

export function frozenSource(data: Frozen): Source {
  const refused = () => Promise.reject(new Refused("A report has one run in it, and changes nothing.", 404));
  return {
    frozenAt: data.made_at,
    readOnly: true,
    can: () => false,
    start: () => Promise.resolve(),
    runs: refused,
    run: () => Promise.resolve(data.run),
    step: (_, path) => {
      const row = data.run.steps.find((one) => one.path === path);
      const more = data.steps[path];
      return row && more ? Promise.resolve({ ...BLANK, ...row, ...more }) : Promise.reject(new Refused("The report leaves the rest of this step out.", 404));
    },
    flow: () => Promise.resolve(data.graph ?? null),
    diff: refused,
    act: refused,
    watch: () => () => {},
    watchRuns: () => () => {},
  };
}
