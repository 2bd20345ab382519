// A report: a run as it was, in the page itself.

import type { FlowGraph, LogCounts, LogLine, Only, RunDetail, StepDetail, StepRow } from "./api";
import { type LogPart, type PartAsked, Refused, type Source } from "./source";

export interface Frozen {
  readonly format: number;
  readonly made_at: number;
  readonly run: RunDetail;
  readonly graph?: FlowGraph | null;
  readonly log?: readonly LogLine[];
  /** Lines of a very long record that say only that it went on. */
  readonly log_left_out?: number;
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
    log: (_, sought, part) => Promise.resolve({ ...partOf(data.log ?? [], sought, part), left_out: data.log_left_out ?? 0 }),
    event: (_, seq) => {
      const line = (data.log ?? []).find((one) => one.seq === seq);
      return line ? Promise.resolve({ ...line }) : Promise.reject(new Refused(`The report has no event ${seq}.`, 404));
    },
    recordOf: () => null,
    diff: refused,
    act: refused,
    watch: () => () => {},
    watchRuns: () => () => {},
  };
}

const SHOWN: { readonly [only in Only]: readonly string[] } = {
  "": [], errors: ["error"], warnings: ["error", "warning"], people: ["person"],
};

/** A part of the lines that fit, as a server would tell it. */
export function partOf(lines: readonly LogLine[], sought: { words: string; only: Only }, part: PartAsked): LogPart {
  const words = sought.words.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = (line: LogLine, only: Only) => only === "" || SHOWN[only].includes(line.level);
  const found = lines.filter((line) => {
    const text = `${line.type} ${line.path} ${line.text}`.toLowerCase();
    return shown(line, sought.only) && words.every((word) => text.includes(word));
  });
  const count = (only: Only) => lines.filter((line) => shown(line, only)).length;
  const counts: LogCounts = { errors: count("errors"), warnings: count("warnings"), people: count("people") };
  const { line } = part;
  const after = line === undefined ? -1 : found.findIndex((one) => one.seq >= line);
  const at = line === undefined || found.length === 0 ? null : after < 0 ? found.length - 1 : after;
  const start = part.start ?? (at === null ? Math.max(0, found.length - part.limit) : Math.max(0, at - Math.floor(part.limit / 2)));
  return { start, total: found.length, at, counts, lines: found.slice(start, start + part.limit) };
}
