// One run as the page knows it: loaded once, then kept up by what the server tells. Mutable.

import type { RunDetail, RunRow } from "./api";
import { Changing } from "./hooks";
import { Refused, type ProgressEvent, type RecordedEvent, type Source } from "./source";
import { Tail } from "./text";
import { Tree } from "./tree";

/** What of an agent's stream, or of a program's output, is kept while a step is looked at. */
const KEPT = 256 * 1024;
const RUN_CHANGED = new Set([
  "GateOpened", "GateAnswered", "SignalReceived", "WorkflowCompleted", "RunSuspended", "RunResumed",
  "LadderStep", "CancelRequested",
]);

export class RunStore extends Changing {
  detail: RunDetail | null = null;
  tree = new Tree();
  problem: Refused | null = null;
  /** True while the server tells what happens; null before it has. */
  online: boolean | null = null;
  /** The step that is looked at, and what came of it meanwhile. */
  watched: string | null = null;
  readonly streams = new Map<ProgressEvent["kind"], Tail>();
  /** Grows when what is recorded of the watched step changed. */
  touched = 0;
  private seq = 0;
  /** How far the texts of the watched step are known, in bytes, and the turn that its agent is at. */
  private ends = new Map<string, number>();
  private turn = 0;
  private stop: (() => void) | null = null;
  private loading: Promise<void> | null = null;
  private closed = false;
  private refreshing: ReturnType<typeof setTimeout> | null = null;

  constructor(
    readonly source: Source,
    readonly id: string,
  ) {
    super();
  }

  protected override pace(): number {
    return this.tree.nodes.size > 2000 ? 250 : 80;
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

  /** Load the whole run (again). */
  load(): Promise<void> {
    this.loading ??= this.reload().finally(() => {
      this.loading = null;
    });
    return this.loading;
  }

  private async reload(): Promise<void> {
    try {
      const detail = await this.source.run(this.id);
      if (this.closed) return;
      this.detail = detail;
      this.problem = null;
      // Events that came while it was on its way are in the tree, and not in it: the tree stays.
      if (detail.seq >= this.seq) {
        this.tree = new Tree(detail.steps);
        this.seq = detail.seq;
      }
    } catch (error) {
      this.problem = error instanceof Refused ? error : new Refused(String(error), 0);
    }
    this.changed();
  }

  private listen(): void {
    this.stop?.();
    this.stop = this.source.watch(this.id, this.seq, {
      line: (open) => {
        if (this.online === open) return;
        this.online = open;
        this.changed();
      },
      record: (event) => this.record(event),
      progress: (piece) => this.progress(piece),
      run: (row) => {
        if (row.state !== this.run?.state) this.refresh(); // that of its steps is another, too
        if (this.detail) this.detail = { ...this.detail, run: row };
        this.changed();
      },
      reset: () => {
        this.seq = 0;
        void this.load().then(() => !this.closed && this.listen());
      },
    });
  }

  private record(event: RecordedEvent): void {
    if (event.seq <= this.seq) return; // told twice
    this.seq = event.seq;
    if (event.step) this.tree.put(event.step);
    if (event.path !== undefined && event.path === this.watched) this.touched += 1;
    if (RUN_CHANGED.has(event.type)) this.refresh();
    this.changed();
  }

  /** Load what is told of the run besides its steps, a moment after the last change of it. */
  private refresh(): void {
    if (this.refreshing !== null) return;
    this.refreshing = setTimeout(() => {
      this.refreshing = null;
      void this.load();
    }, this.tree.nodes.size > 2000 ? 2000 : 150);
  }

  private progress(piece: ProgressEvent): void {
    if (piece.path !== this.watched) return;
    const turn = piece.kind === "message" ? (piece.turn ?? 0) : 0;
    if (turn > this.turn) {
      // The agent was asked again: there is another prompt to be shown.
      this.turn = turn;
      this.touched += 1;
      return this.changed();
    }
    const text = this.newIn(piece);
    if (!text) return;
    let tail = this.streams.get(piece.kind);
    if (!tail) this.streams.set(piece.kind, (tail = new Tail(KEPT)));
    tail.add(text);
    this.changed();
  }

  /** What of a piece is not known yet. */
  private newIn(piece: ProgressEvent): string {
    if (piece.end === undefined) return piece.text;
    const known = this.ends.get(piece.kind) ?? 0;
    if (piece.end <= known) return "";
    this.ends.set(piece.kind, piece.end);
    const bytes = new TextEncoder().encode(piece.text);
    const doubled = known - (piece.end - bytes.length);
    return doubled <= 0 ? piece.text : new TextDecoder().decode(bytes.slice(doubled));
  }

  /** Keep the stream of this step from now on; what came before is in what was loaded of it. */
  look(path: string | null, ends: { readonly [kind: string]: number } = {}, turn = 0): void {
    this.watched = path;
    this.streams.clear();
    this.ends = new Map(Object.entries(ends));
    this.turn = turn;
  }
}
