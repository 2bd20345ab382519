// Where a step lies on the time of its run. Pure.

import type { StepRow } from "./api";

export interface Span {
  readonly from: number;
  readonly to: number;
}

/** The place and the width of a step's bar, in percent; null if it has not begun. */
export function barOf(step: StepRow, span: Span): { left: number; width: number } | null {
  if (step.started_at === null) return null;
  const whole = span.to - span.from;
  const began = Math.max(span.from, step.started_at);
  const ended = Math.min(span.to, step.ended_at ?? span.to);
  const left = (100 * (began - span.from)) / whole;
  return { left: Math.min(100, left), width: Math.max(0, (100 * (ended - began)) / whole) };
}

const ROUND = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600,
  7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
];

/** At most `most` round times along a span, in seconds from its start. */
export function axisOf(span: Span, most: number): { at: number; left: number }[] {
  const whole = span.to - span.from;
  const apart = ROUND.find((one) => whole / one <= most) ?? whole / most;
  const ticks = [];
  for (let i = 0; i * apart <= whole * 0.97; i++) {
    ticks.push({ at: i * apart, left: (100 * i * apart) / whole });
  }
  return ticks;
}
