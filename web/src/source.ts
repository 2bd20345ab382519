// Where the page has its data from: a server, or what a report has in it.

import type { FlowGraph, LogCounts, LogLine, Only, RunDetail, RunDiff, RunRow, RunState, StepDetail, StepRow } from "./api";

export interface RunsPage {
  readonly runs: readonly RunRow[];
  readonly next: string | null;
  readonly total: number;
  readonly counts: Partial<Record<RunState, number>>;
}

export interface RunsQuery {
  readonly q: string;
  readonly state: string;
  readonly cursor: string | null;
  readonly limit: number;
}

/** What a server refuses: its text, and its fields. */
export class Refused extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly fields: { readonly [name: string]: unknown } = {},
  ) {
    super(message);
  }
}

export type Verb =
  | "answer" | "signal" | "pause" | "unpause" | "guide" | "complete" | "skip" | "retry" | "work" | "stop"
  | "cancel" | "resume" | "plan" | "fork";

export type TextKind = "message" | "reasoning" | "activity" | "stdout" | "stderr";

/** What is told of a run while it is watched. */
export interface Watcher {
  /** The line is open (again), or lost. */
  line(open: boolean): void;
  /** A journaled event, with the row of the step that it changed. */
  record(event: RecordedEvent): void;
  /** Something that is shown, and not kept. */
  progress(piece: ProgressEvent): void;
  run(row: RunRow): void;
  /** What is known no longer holds: load it again. */
  reset(): void;
}

export interface RecordedEvent {
  readonly type: string;
  readonly seq: number;
  readonly at: number;
  readonly path?: string;
  readonly step?: StepRow;
}

export interface ProgressEvent {
  readonly path: string;
  readonly kind: TextKind;
  readonly text: string;
  /** Where it lies in all of that kind, in bytes; of a message in that of its turn, from 1. */
  readonly start: number;
  readonly end: number;
  readonly turn?: number;
}

/** A part of the lines that fit. */
export interface LogPart {
  /** The place of its first line among all that fit, from 0; how many those are. */
  readonly start: number;
  readonly total: number;
  /** The place of the line that was asked for. */
  readonly at: number | null;
  readonly counts: LogCounts;
  readonly lines: readonly LogLine[];
  /** Lines that a report does not have. */
  readonly left_out?: number;
}

/** Which part: from a place on, or around a line; else the last lines. */
export interface PartAsked {
  readonly start?: number;
  readonly line?: number;
  readonly limit: number;
}

export interface Source {
  /** Of a report: when it was made; null: it is live. */
  readonly frozenAt: number | null;
  readonly readOnly: boolean;
  /** True if this can be done here. */
  can(verb: Verb): boolean;
  start(): Promise<void>;
  runs(query: RunsQuery): Promise<RunsPage>;
  /** A run; without the rows of its steps if those are known. */
  run(id: string, steps: boolean): Promise<RunDetail>;
  step(id: string, path: string): Promise<StepDetail>;
  /** The graph of its workflow; null if its source is not known here. */
  flow(id: string): Promise<FlowGraph | null>;
  /** Lines of a run's record that have all these words. */
  log(id: string, sought: { readonly words: string; readonly only: Only }, part: PartAsked): Promise<LogPart>;
  /** One event as it is recorded. */
  event(id: string, seq: number): Promise<{ readonly [name: string]: unknown }>;
  /** The address of the whole record, a JSON object a line; null: there is none. */
  recordOf(id: string): string | null;
  diff(a: string, b: string): Promise<RunDiff>;
  act(id: string, verb: Verb, body: object): Promise<{ readonly [name: string]: unknown }>;
  /** Be told of a run from after this event on, and of what one step says; the way to stop. */
  watch(id: string, after: number, step: string | null, watcher: Watcher): () => void;
  /** Be told of the rows of runs that change. */
  watchRuns(row: (row: RunRow) => void, line: (open: boolean) => void): () => void;
}
