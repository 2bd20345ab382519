// One run as the page knows it: loaded once, then kept up by what the server tells. Mutable.

import type { Queue, RunDetail, RunRow } from "./api";
import { Changing } from "./hooks";
import { size } from "./format";
import { Refused, type ProgressEvent, type RecordedEvent, type Source, type TextKind } from "./source";
import { Tail } from "./text";
import { aroundIt, Tree } from "./tree";

/** What of an agent's stream, or of a program's output, is kept while a step is looked at. */
const KEPT = 256 * 1024;
const RUN_CHANGED = new Set([
  "GateOpened", "GateAnswered", "SignalReceived", "WorkflowCompleted", "RunSuspended", "RunResumed",
  "LadderStep", "CancelRequested", "RunSteered", "TasksQueued", "WorkEdited", "WorkStopped",
]);

/** Of a run with more steps and tasks than these it is told less often how it stands. */
const MANY = 2000;

const DRIVEN: ReadonlySet<string> = new Set(["running", "paused"]);

export class RunStore extends Changing {
  detail: RunDetail | null = null;
  tree = new Tree();
  problem: Refused | null = null;
  /** True while the server tells what happens; null before it has. */
  online: boolean | null = null;
  /** The step that is looked at, and what came of it meanwhile. */
  watched: string | null = null;
  readonly streams = new Map<TextKind, Tail>();
  /** Grows when what is recorded of the watched step changed. */
  touched = 0;
  private seq = 0;
  /** How far the texts of the watched step are known, in bytes, and the turn that its agent is at. */
  private ends = new Map<string, number>();
  private turn = 0;
  /** The step whose texts the line tells. */
  private told: string | null = null;
  private stop: (() => void) | null = null;
  private loading: Promise<void> | null = null;
  private closed = false;
  /** The tree is whole: what comes on the line keeps it so. */
  private known = false;
  private round = 0;
  private refreshing: ReturnType<typeof setTimeout> | null = null;

  constructor(
    readonly source: Source,
    readonly id: string,
  ) {
    super();
  }

  protected override pace(): number {
    return this.tree.nodes.size > MANY ? 250 : 80;
  }

  /** The number of the last event that it was told of. */
  get lastSeq(): number {
    return this.seq;
  }

  get run(): RunRow | null {
    return this.detail?.run ?? null;
  }

  /** Load the run, and begin to listen. */
  async open(): Promise<void> {
    await this.load();
    if (this.source.frozenAt === null && !this.closed && this.detail) this.listen();
  }

  close(): void {
    this.closed = true;
    this.stop?.();
    if (this.refreshing !== null) clearTimeout(this.refreshing);
  }

  /** Load the run (again); its steps only if they are not known. */
  load(): Promise<void> {
    const round = this.round;
    this.loading ??= this.reload(round).finally(() => {
      if (round === this.round) this.loading = null;
    });
    return this.loading;
  }

  /** Load the run as it is from now on: what is on its way may have left before a change. */
  loadAfter(): Promise<void> {
    return Promise.resolve(this.loading).then(() => (this.closed ? undefined : this.load()));
  }

  private async reload(round: number): Promise<void> {
    const steps = !this.known;
    try {
      const detail = await this.source.run(this.id, steps);
      if (this.closed || round !== this.round) return;
      this.detail = { ...detail, steps: [] };
      this.problem = null;
      // Events that came while it was on its way are in the tree, and not in it: the tree stays.
      if (steps && detail.seq >= this.seq) {
        this.tree = new Tree(detail.steps);
        this.seq = detail.seq;
        this.known = true;
      }
      for (const queue of detail.work) this.grow(queue);
    } catch (error) {
      this.problem = error instanceof Refused ? error : new Refused(String(error), 0);
    }
    this.changed();
  }

  private listen(): void {
    this.stop?.();
    this.told = this.watched;
    this.stop = this.source.watch(this.id, this.seq, this.told, {
      line: (open) => {
        if (this.online === open) return;
        this.online = open;
        this.changed();
      },
      record: (event) => this.record(event),
      progress: (piece) => this.progress(piece),
      run: (row) => {
        const before = this.run;
        if (DRIVEN.has(row.state) !== DRIVEN.has(before?.state ?? "")) this.known = false; // its steps are in other states, too
        if (!this.known || row.state !== before?.state || JSON.stringify(row.waits_for) !== JSON.stringify(before?.waits_for)) this.refresh();
        if (this.detail) this.detail = { ...this.detail, run: row };
        this.changed();
      },
      reset: () => {
        this.seq = 0;
        this.known = false;
        this.round += 1; // what is on its way is old
        this.loading = null;
        void this.load().then(() => !this.closed && this.listen());
      },
    });
  }

  private record(event: RecordedEvent): void {
    if (event.seq <= this.seq) return; // told twice
    this.seq = event.seq;
    if (event.step) this.tree.put(event.step);
    if (event.path !== undefined && event.path === this.watched) this.touched += 1;
    if (RUN_CHANGED.has(event.type) || this.isOfAQueue(event.path)) this.refresh();
    this.changed();
  }

  /** True for a `work` step, and for a task of one. */
  private isOfAQueue(path: string | undefined): boolean {
    if (path === undefined) return false;
    const paths = [path, ...aroundIt(path)];
    return this.detail?.work.some((one) => paths.includes(one.path)) ?? false;
  }

  /** Put the number of its tasks into the row of a `work` step: what a task brings is told of the task alone. */
  private grow(queue: Queue): void {
    const row = this.tree.get(queue.path);
    if (row) this.tree.put({ ...row, size: tasksOf(queue) });
  }

  /** How many steps and tasks there are, as far as it is known. */
  private get weight(): number {
    return (this.detail?.work ?? []).reduce((sum, queue) => sum + tasksOf(queue), this.tree.nodes.size);
  }

  /** Load what is told of the run besides its steps, a moment after the last change of it. */
  private refresh(): void {
    if (this.refreshing !== null) return;
    this.refreshing = setTimeout(() => {
      this.refreshing = null;
      void this.loadAfter();
    }, this.weight > MANY ? 2000 : 150);
  }

  private progress(piece: ProgressEvent): void {
    if (piece.path !== this.watched) return;
    const turn = piece.kind === "message" ? (piece.turn ?? 0) : 0;
    if (piece.kind === "message" && turn < this.turn) return;
    const known = this.ends.get(piece.kind) ?? 0;
    if (turn > this.turn || (piece.start > known && piece.text === "")) {
      // The agent was asked again, so there is another prompt to be shown; or what is told begins
      // behind what is known, because the line was lost. Either way the step is loaded again.
      this.turn = Math.max(turn, this.turn);
      this.touched += 1;
      return this.changed();
    }
    if (piece.end <= known) return;
    this.ends.set(piece.kind, piece.end);
    let tail = this.streams.get(piece.kind);
    if (!tail) this.streams.set(piece.kind, (tail = new Tail(KEPT)));
    if (piece.start > known) tail.add(`\n… ${size(piece.start - known)} came too fast to be shown …\n`);
    tail.add(piece.start < known ? behind(piece.text, known - piece.start) : piece.text);
    this.changed();
  }

  /**
   * Keep the stream of this step from now on; what came before is in what was loaded of it.
   * `live`: it may say more.
   */
  look(path: string | null, ends: { readonly [kind: string]: number } = {}, turn = 0, live = false): void {
    this.watched = path;
    this.streams.clear();
    this.ends = new Map(Object.entries(ends));
    this.turn = turn;
    if (live && this.told !== path && this.stop !== null) this.listen();
  }
}

/** How many tasks a queue has, whether they wait, are at work or have ended. */
function tasksOf(queue: Queue): number {
  return queue.queued_count + queue.running_count + queue.done + queue.failed;
}

/** A text without its first bytes. */
function behind(text: string, bytes: number): string {
  return new TextDecoder().decode(new TextEncoder().encode(text).slice(bytes));
}
