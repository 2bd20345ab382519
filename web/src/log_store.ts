// The lines of a run's record as the page knows them: some pages of them, however long it is. Mutable.

import type { LogCounts, LogLine, Only } from "./api";
import { Changing } from "./hooks";
import type { LogPart, Source } from "./source";

export const PAGE = 200;
/** Pages that are kept: those that were seen last. */
const KEPT = 24;
/** Who scrolls fast through many pages is resting for none until it rests on some. */
const RESTED_MS = 50;
const MOST_AT_ONCE = 3;
/** Between two looks at what has come. */
const AGAIN_MS = 400;

export interface Sought {
  readonly words: string;
  readonly only: Only;
}

export class LogStore extends Changing {
  total = 0;
  counts: LogCounts = { errors: 0, warnings: 0, people: 0 };
  /** Lines that a report does not have. */
  leftOut = 0;
  problem = "";
  loaded = false;
  private sought: Sought = { words: "", only: "" };
  private pages = new Map<number, readonly LogLine[]>();
  private wanted = new Map<number, true>();
  private resting: ReturnType<typeof setTimeout> | null = null;
  private growing: ReturnType<typeof setTimeout> | null = null;
  private lastLook = -Infinity;
  private round = 0;
  private closed = false;

  constructor(
    readonly source: Source,
    readonly id: string,
  ) {
    super();
  }

  close(): void {
    this.closed = true;
    for (const timer of [this.resting, this.growing]) if (timer !== null) clearTimeout(timer);
  }

  /** Show what fits, near the line of this number; its place among what fits, or null if none is resting for. */
  async seek(sought: Sought, line: number | null): Promise<number | null> {
    const round = ++this.round;
    this.sought = sought;
    this.wanted.clear();
    const found = await this.load(line === null ? { start: 0 } : { line, limit: 1 }, round, () => this.pages.clear());
    return found?.at ?? null;
  }

  /** The line at a place among what fits; null: it is resting for. */
  line(place: number): LogLine | null {
    const page = Math.floor(place / PAGE);
    const lines = this.pages.get(page);
    if (lines) {
      this.pages.delete(page); // the last that were seen stand last
      this.pages.set(page, lines);
      const found = lines[place % PAGE];
      if (found) return found;
    }
    this.want(page);
    return null;
  }

  /** Look for what has come since. */
  grow(): void {
    if (this.growing !== null || !this.loaded) return;
    this.growing = setTimeout(
      () => {
        this.growing = null;
        this.lastLook = performance.now();
        void this.page(Math.floor(this.total / PAGE));
      },
      Math.max(0, this.lastLook + AGAIN_MS - performance.now()),
    );
  }

  private want(page: number): void {
    this.wanted.delete(page);
    this.wanted.set(page, true);
    this.resting ??= setTimeout(() => {
      this.resting = null;
      const pages = [...this.wanted.keys()].slice(-MOST_AT_ONCE);
      this.wanted.clear();
      for (const one of pages) void this.page(one);
    }, RESTED_MS);
  }

  private async page(page: number): Promise<void> {
    await this.load({ start: page * PAGE, limit: PAGE }, this.round, () => {});
  }

  private async load(part: { start?: number; line?: number; limit?: number }, round: number, first: () => void): Promise<LogPart | null> {
    try {
      const found = await this.source.log(this.id, this.sought, { limit: PAGE, ...part });
      if (this.closed || round !== this.round) return null;
      first();
      this.take(found);
      return found;
    } catch (error) {
      if (!this.closed && round === this.round) {
        this.problem = (error as Error).message;
        this.changed();
      }
      return null;
    }
  }

  private take(found: LogPart): void {
    if (found.total < this.total) this.pages.clear(); // it is another record
    this.total = found.total;
    this.counts = found.counts;
    this.leftOut = found.left_out ?? 0;
    this.problem = "";
    this.loaded = true;
    // Only whole pages are kept: what a look for one line brought may be a part of one.
    if (found.start % PAGE === 0 && found.lines.length === Math.min(PAGE, found.total - found.start)) {
      this.pages.delete(found.start / PAGE);
      this.pages.set(found.start / PAGE, found.lines);
    }
    while (this.pages.size > KEPT) this.pages.delete(this.pages.keys().next().value!);
    this.changed();
  }
}
