// Where steps lie on the time of their run, and the part of it that is seen. Pure.

import type { StepRow, StepState } from "./api";

/** From when to when, in unix seconds. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

export interface Bar {
  /** In percent of the span. */
  readonly left: number;
  readonly width: number;
  readonly state: StepState;
}

/** The bars of a step, one for each time that it was at work, as far as they are in the span. */
export function barsOf(step: StepRow, span: Span, now: number): Bar[] {
  if (step.started_at === null) return [];
  const stretches = step.spans ?? [[step.started_at, step.ended_at, ""] as const];
  const found: Bar[] = [];
  for (const [from, to, how] of stretches) {
    const end = to ?? Math.max(from, now);
    if (end < span.from || from > span.to) continue;
    const left = percent(Math.max(from, span.from), span);
    const state = how === "" ? step.state : how;
    found.push({ left, width: percent(Math.min(end, span.to), span) - left, state });
  }
  return found;
}

/** Where a time lies in a span, in percent. */
export function percent(at: number, span: Span): number {
  return (100 * (at - span.from)) / (span.to - span.from);
}

const LEAST_S = 0.01;

/** The span with `factor` of its length, in which the time `at` stays where it is; within `whole`. */
export function zoomed(span: Span, at: number, factor: number, whole: Span): Span {
  const long = Math.min(whole.to - whole.from, Math.max(LEAST_S, (span.to - span.from) * factor));
  const from = at - ((at - span.from) * long) / (span.to - span.from);
  return within({ from, to: from + long }, whole);
}

/** The span moved by a part of its length; within `whole`. */
export function moved(span: Span, part: number, whole: Span): Span {
  const by = part * (span.to - span.from);
  return within({ from: span.from + by, to: span.to + by }, whole);
}

function within(span: Span, whole: Span): Span {
  const long = Math.min(span.to - span.from, whole.to - whole.from);
  const from = Math.min(Math.max(span.from, whole.from), whole.to - long);
  return { from, to: from + long };
}

/** The parts of a span in which nobody drove the run. */
export function idle(drives: readonly (readonly [number, number | null])[], span: Span): Span[] {
  const found: Span[] = [];
  let before = drives[0]?.[0] ?? span.from;
  for (const [from, to] of [...drives, [span.to, null] as const]) {
    const gap = { from: Math.max(before, span.from), to: Math.min(from, span.to) };
    if (gap.to - gap.from > (span.to - span.from) / 500) found.push(gap);
    before = Math.max(before, to ?? span.to);
  }
  return found;
}

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;
const ROUND = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE,
  15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY,
];

export interface Tick {
  readonly at: number;
  readonly left: number;
  /** The length of time between two ticks, in seconds. */
  readonly apart: number;
}

/** Round times in a span, at most so many: counted from `zero`, which is where round times begin. */
export function ticksOf(span: Span, most: number, zero: number): Tick[] {
  const long = span.to - span.from;
  const apart = ROUND.find((one) => long / one <= most) ?? long / most;
  const found: Tick[] = [];
  for (let n = Math.ceil((span.from - zero) / apart - 1e-6); zero + n * apart <= span.to; n++) {
    const at = zero + n * apart;
    const left = percent(at, span);
    if (left <= 97) found.push({ at, left, apart });
  }
  return found;
}

/** Midnight, where the reader is, before a time. */
export function midnight(at: number): number {
  const day = new Date(at * 1000);
  day.setHours(0, 0, 0, 0);
  return day.getTime() / 1000;
}
