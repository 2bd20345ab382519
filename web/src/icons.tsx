// Small pictures, drawn here: no font and no other host is asked for them.

import type { RunState, StepState } from "./api";

const PATHS = {
  rail: "M3 13V7.5l10-3V13M3 9.5l10-3",
  check: "M4.6 8.3l2.3 2.3 4.5-5",
  cross: "M5.5 5.5l5 5m0-5l-5 5",
  dash: "M5 8h6",
  pause: "M6.3 5.5v5m3.4-5v5",
  bang: "M8 4.6v4.2M8 11.3v.1",
  chevron: "M6 3.5L10.5 8 6 12.5",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.5 10.5L14 14",
  close: "M4 4l8 8m0-8l-8 8",
  plus: "M8 3.5v9M3.5 8h9",
  minus: "M3.5 8h9",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  back: "M9.5 3.5L5 8l4.5 4.5",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  play: "M5.5 3.8v8.4L12 8z",
  stop: "M4.5 4.5h7v7h-7z",
  fork: "M5 3v10M5 9c0-3 6-1.5 6-5.5M3.5 13h3M9.5 3.5h3M3.5 3h3",
  download: "M8 2.5v7.5M4.8 7L8 10.2 11.2 7M3 13.5h10",
  link: "M6.8 9.2l2.4-2.4M7.2 4.8l1-1a2.6 2.6 0 0 1 3.7 3.7l-1 1M8.8 11.2l-1 1a2.6 2.6 0 0 1-3.7-3.7l1-1",
  person: "M8 8.2a2.6 2.6 0 1 0 0-5.2 2.6 2.6 0 0 0 0 5.2zM3.2 13.5c.5-2.6 2.4-3.6 4.8-3.6s4.3 1 4.8 3.6",
  fit: "M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3",
} as const;

export type Picture = keyof typeof PATHS;

export function Icon({ of, title }: { of: Picture; title?: string }) {
  return (
    <svg
      class="icon"
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      stroke-width={of === "more" ? 2.2 : 1.5}
      stroke-linecap="round"
      stroke-linejoin="round"
      role={title ? "img" : undefined}
      aria-hidden={title ? undefined : "true"}
      aria-label={title}
    >
      <path d={PATHS[of]} />
    </svg>
  );
}

export type AnyState = StepState | RunState;

const IN_A_CIRCLE: Partial<Record<AnyState, Picture>> = {
  succeeded: "check",
  failed: "cross",
  damaged: "cross",
  cancelled: "cross",
  skipped: "dash",
  defaulted: "check",
  waiting: "pause",
  suspended: "pause",
  paused: "pause",
  interrupted: "bang",
  dead: "bang",
};

const FULL: ReadonlySet<AnyState> = new Set(["succeeded", "failed", "damaged"]);

/** A state, told by its form as well as by its colour. */
export function StateIcon({ state }: { state: AnyState }) {
  const inside = IN_A_CIRCLE[state];
  return (
    <svg class={`icon s-${state}`} viewBox="0 0 16 16" fill="none" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
      {state === "running" ? (
        <>
          <circle cx="8" cy="8" r="5.75" stroke="currentColor" stroke-width="2" opacity=".25" />
          <path class="spin" d="M8 2.25A5.75 5.75 0 0 1 13.75 8" stroke="currentColor" stroke-width="2" />
        </>
      ) : FULL.has(state) ? (
        <>
          <circle cx="8" cy="8" r="6.75" fill="currentColor" />
          <path d={PATHS[inside ?? "dash"]} stroke="var(--ground)" stroke-width="1.75" />
        </>
      ) : (
        <>
          <circle cx="8" cy="8" r="6" stroke="currentColor" stroke-width="1.5" stroke-dasharray={state === "open" ? "2.5 2.2" : undefined} />
          {inside && <path d={PATHS[inside]} stroke="currentColor" stroke-width="1.5" />}
        </>
      )}
    </svg>
  );
}

const WORDS: Partial<Record<AnyState, string>> = {
  dead: "not driven",
  open: "not ended",
  defaulted: "by default",
};

/** A state as people say it. */
export function wordOf(state: AnyState): string {
  return WORDS[state] ?? state;
}

export function StatePill({ state, note }: { state: AnyState; note?: string }) {
  return (
    <span class={`pill s-${state}`}>
      <StateIcon state={state} />
      {wordOf(state)}
      {note ? <span class="soft"> {note}</span> : null}
    </span>
  );
}
