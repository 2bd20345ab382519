// What the server says, as it says it, and the way to ask it. Times are unix seconds.

export type StepState =
  | "succeeded"
  | "failed"
  | "skipped"
  | "defaulted"
  | "cancelled"
  | "running"
  | "waiting"
  | "interrupted"
  | "open";

export type RunState =
  | "running"
  | "paused"
  | "suspended"
  | "succeeded"
  | "failed"
  | "cancelled"
  | "dead"
  | "damaged";

export interface WaitsFor {
  readonly kind: "answer" | "signal" | "person" | "time" | "claim" | "unpause";
  readonly path: string;
  readonly what: string;
  readonly whom: string;
  readonly until: number | null;
}

export interface Usage {
  readonly input_tokens?: number | null;
  readonly output_tokens?: number | null;
  readonly tokens?: number | null;
  readonly cost_usd?: number | null;
}

export interface RunRow {
  readonly run_id: string;
  readonly workflow: string;
  readonly state: RunState;
  readonly started_at: number;
  readonly updated_at: number;
  readonly duration_ms: number | null;
  readonly events: number;
  readonly labels: { readonly [name: string]: string };
  readonly waits_for: readonly WaitsFor[];
  readonly cost_usd: number | null;
  readonly tokens: number | null;
  readonly launches: number | null;
  /** Why its record is not read: it is being read, or cannot be. */
  readonly unread: string | null;
  readonly error: string | null;
  /** The paths of some steps that are at work. */
  readonly at_work: readonly string[];
  readonly forked_from: readonly [string, string | null] | null;
  readonly holder: { readonly pid: number; readonly host: string } | null;
}

export interface StepRow {
  readonly path: string;
  readonly name: string;
  readonly step_type: string;
  readonly state: StepState;
  readonly attempts: number;
  readonly started_at: number | null;
  readonly ended_at: number | null;
  readonly duration_ms: number | null;
  readonly error: string | null;
  readonly error_type: string | null;
  readonly launches?: number;
  readonly usage?: Usage | null;
  /** Of a command, where it is not 0. */
  readonly exit_code?: number;
  readonly given_by?: string | null;
  readonly handled?: readonly Failure[];
  readonly undone?: { readonly error: string | null } | null;
  readonly size?: number | null;
  /** When it was at work, if it was several times: from, to (null: it goes on), how that ended. */
  readonly spans?: readonly Stretch[];
}

export type Stretch = readonly [from: number, to: number | null, how: "" | "failed" | "interrupted"];

export interface Failure {
  readonly path?: string;
  readonly error: string;
  readonly error_type?: string | null;
}

export interface Gate {
  readonly path: string;
  readonly question: string;
  readonly choices: readonly unknown[];
  /** By label, the text that a choice asks for. */
  readonly prompts: { readonly [label: string]: string };
  readonly schema: { readonly [key: string]: unknown } | null;
  readonly default: unknown;
  readonly has_default: boolean;
  readonly since: number;
  readonly deadline: number | null;
}

export interface Signal {
  readonly name: string;
  readonly path: string;
  readonly schema: { readonly [key: string]: unknown } | null;
}

export interface Act {
  readonly at: number;
  readonly action: string;
  readonly path: string;
  readonly value: string;
  readonly by: string | null;
}

export interface QueuedTask {
  readonly id: string;
  readonly priority: number;
}

/** What somebody wants done to a queue. */
export interface QueueEdit {
  readonly add: readonly QueuedTask[];
  readonly drop: readonly string[];
  readonly priority: { readonly [id: string]: number };
  readonly by: string | null;
}

/** The queue of a `work` step: of each list the first 100, and how many there are. */
export interface Queue {
  readonly path: string;
  /** The next one first. */
  readonly queued: readonly QueuedTask[];
  readonly queued_count: number;
  readonly running: readonly string[];
  readonly running_count: number;
  readonly done: number;
  readonly failed: number;
  /** Each id once, however often it was refused. */
  readonly refused: readonly string[];
  readonly refused_count: number;
  readonly why_stopped: string | null;
  readonly over: boolean;
  /** Edits that the run has not read: the lists do not show them. */
  readonly unread: readonly QueueEdit[];
}

export interface RunDetail {
  readonly run: RunRow;
  readonly seq: number;
  readonly inputs: unknown;
  readonly value: unknown;
  readonly error: string | null;
  readonly failed_step: string | null;
  readonly gates: readonly Gate[];
  readonly signals: readonly Signal[];
  readonly needs: readonly string[];
  /** What people did to it. */
  readonly acts: readonly Act[];
  /** When it was driven: from, to (null: it is now). */
  readonly drives: readonly (readonly [number, number | null])[];
  readonly work: readonly Queue[];
  readonly steps: readonly StepRow[];
}

export interface Attempt {
  readonly number: number;
  readonly at: number | null;
  readonly error: string | null;
  readonly error_type: string | null;
  readonly usage?: Usage | null;
}

export interface Incident {
  readonly path?: string;
  readonly kind: string;
  readonly error: string;
  readonly at?: number | null;
  readonly due?: number | null;
  readonly over_at?: number | null;
  readonly next?: string;
}

export interface Turn {
  readonly prompt: string;
  readonly answer: string | null;
}

/** How grave a line is; `person`: somebody did it, or is asked for it. */
export type LogLevel = "error" | "warning" | "person" | "info";
/** Lines that are shown alone; "": all. */
export type Only = "" | "errors" | "warnings" | "people";

/** An event of the record, in words. */
export interface LogLine {
  readonly seq: number;
  readonly at: number;
  readonly type: string;
  /** "" of the run itself. */
  readonly path: string;
  readonly level: LogLevel;
  readonly text: string;
}

/** How many lines of the whole record each `only` shows. */
export type LogCounts = { readonly [only in Exclude<Only, "">]: number };

export interface StepDetail extends StepRow {
  readonly output: unknown;
  readonly output_cut?: boolean;
  readonly traceback: string | null;
  readonly turns: readonly Turn[];
  /** How many turns there were before these. */
  readonly turns_before: number;
  /** What the agent has said to the last prompt. */
  readonly text: string;
  readonly reasoning: string;
  /** What an agent did besides: a JSON object a line. */
  readonly activity: string;
  /** Where each of these texts ends, in bytes of all that there was. */
  readonly ends: { readonly [kind: string]: number };
  readonly stdout: string;
  readonly stderr: string;
  readonly tries: readonly Attempt[];
  readonly incidents: readonly Incident[];
  readonly session: string | null;
  readonly backend: string | null;
  readonly model: string | null;
  readonly answer: { readonly answer: unknown; readonly by: string | null; readonly at: number } | null;
}

export interface PlannedStep {
  readonly path: string;
  readonly state: "recorded" | "changed" | "will run" | "may run" | "orphaned";
  readonly step_type: string;
  readonly status: string | null;
  readonly was: string;
  readonly now: string;
  readonly interrupted: boolean;
  readonly reached: boolean;
}

/** What a resume would do. */
export interface Plan {
  readonly steps: readonly PlannedStep[];
  readonly ends: string | null;
  readonly undoes: readonly string[];
  readonly unwinds: string | null;
  readonly waits_for: readonly WaitsFor[];
  readonly stuck: string | null;
}

/** What is certain of a name: literal texts, between which anything may stand. */
export type NamePattern = readonly string[];

export interface FlowNode {
  readonly id: string;
  readonly label: string;
  readonly kind: string;
  /** Of the step that it stands for; null: of none. */
  readonly name: NamePattern | null;
  /** Of the groups around it, outermost first. */
  readonly inside: readonly NamePattern[];
}

/** What a workflow may do, as its source says. */
export interface FlowGraph {
  readonly nodes: readonly FlowNode[];
  readonly edges: readonly { readonly from: string; readonly to: string; readonly label: string; readonly dashed: boolean }[];
}

export interface StepDiff {
  readonly path: string;
  readonly state: "same" | "changed" | "only_a" | "only_b";
  readonly fields: readonly string[];
  readonly a: StepSide | null;
  readonly b: StepSide | null;
}

export interface StepSide {
  readonly status: StepState;
  readonly output: unknown;
  readonly error: string | null;
  readonly attempts: number;
  readonly duration_ms: number | null;
}

export interface RunDiff {
  readonly a: string;
  readonly b: string;
  readonly same: boolean;
  readonly fields: readonly string[];
  readonly steps: readonly StepDiff[];
}
