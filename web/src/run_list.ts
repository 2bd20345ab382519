// The runs of a journal, newest first, by pages. Mutable.

import type { RunRow, RunState } from "./api";
import { Changing } from "./hooks";
import type { Source } from "./source";

const PAGE = 200;

export class RunList extends Changing {
  runs: RunRow[] = [];
  total = 0;
  counts: Partial<Record<RunState, number>> = {};
  loaded = false;
  problem = "";
  online: boolean | null = null;
  private query = "";
  private state = "";
  private next: string | null = null;
  private busy = false;
  private round = 0;
  private later: ReturnType<typeof setTimeout> | null = null;

  constructor(readonly source: Source) {
    super();
  }

  /** Listen to what changes; the way to stop. */
  open(): () => void {
    return this.source.watchRuns(
      (row) => this.row(row),
      (open) => {
        if (open && this.online === false) void this.reload(); // what was missed meanwhile
        this.online = open;
        this.changed();
      },
    );
  }

  /** Show the runs that fit. */
  show(query: string, state: string): void {
    if (this.loaded && query === this.query && state === this.state) return;
    this.query = query;
    this.state = state;
    void this.reload();
  }

  private async reload(): Promise<void> {
    this.round += 1;
    this.next = null;
    this.busy = false;
    await this.page(true);
  }

  /** Load the runs again. */
  again(): void {
    void this.reload();
  }

  /** Load the next page, if there is one. */
  more(): void {
    if (this.next !== null && !this.busy) void this.page(false);
  }

  private async page(first: boolean): Promise<void> {
    const round = this.round;
    this.busy = true;
    try {
      const limit = first ? Math.max(PAGE, Math.min(this.runs.length, 1000)) : PAGE;
      const found = await this.source.runs({ q: this.query, state: this.state, cursor: this.next, limit });
      if (round !== this.round) return;
      const known = new Set(first ? [] : this.runs.map((one) => one.run_id));
      this.runs = [...(first ? [] : this.runs), ...found.runs.filter((one) => !known.has(one.run_id))];
      this.next = found.next;
      this.total = found.total;
      this.counts = found.counts;
      this.problem = "";
    } catch (error) {
      if (round === this.round) this.problem = (error as Error).message;
    } finally {
      if (round === this.round) {
        this.busy = false;
        this.loaded = true;
        this.changed();
      }
    }
  }

  private row(row: RunRow): void {
    const place = this.runs.findIndex((one) => one.run_id === row.run_id);
    const known = this.runs[place];
    if (known) {
      this.runs[place] = row;
      if (known.state === row.state) return this.changed();
    } else if (this.loaded && this.query === "" && this.state === "") {
      this.runs.unshift(row);
    }
    this.changed();
    // A new run, or one in another state: the order and the counts are the server's to say.
    this.later ??= setTimeout(() => {
      this.later = null;
      void this.reload();
    }, 500);
  }
}
