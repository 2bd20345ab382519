// A report: a run as it was, in the page itself.

import type { RunDetail, RunGraph, StepDetail } from "./api";
import { Refused, type Source } from "./source";

export interface Frozen {
  readonly format: number;
  readonly made_at: number;
  readonly run: RunDetail;
  readonly steps: { readonly [path: string]: StepDetail };
  readonly graph?: RunGraph | null;
}

/** What a report has in it; null: this page is none. */
export function frozenIn(page: Document): Frozen | null {
  const text = page.getElementById("handrail-data")?.textContent;
  return text ? (JSON.parse(text) as Frozen) : null;
}

export function frozenSource(data: Frozen): Source {
  const refused = () => Promise.reject(new Refused("A report has one run in it, and changes nothing.", 404));
  return {
    frozenAt: data.made_at,
    readOnly: true,
    start: () => Promise.resolve(),
    runs: refused,
    run: () => Promise.resolve(data.run),
    step: (_, path) => {
      const found = data.steps[path];
      return found ? Promise.resolve(found) : Promise.reject(new Refused("The report leaves the rest of this step out.", 404));
    },
    graph: () => Promise.resolve(data.graph ?? null),
    diff: refused,
    act: refused,
    watch: () => () => {},
    watchRuns: () => () => {},
  };
}
