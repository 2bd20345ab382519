// The steps of a run along the time that they took. It can be zoomed and moved.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { RunDetail } from "./api";
import { duration, mark, moment } from "./format";
import { useClock, useMedia } from "./hooks";
import { Icon, wordOf } from "./icons";
import { StepName, Twist } from "./step_line";
import { oneLine } from "./text";
import { barsOf, idle, midnight, moved, percent, type Span, ticksOf, zoomed } from "./timeline";
import type { TreeRow } from "./tree";
import { Rows, type RowsProps } from "./tree_view";

const ELAPSED_S = 3 * 3600; // the axis of a shorter run counts from its beginning
const DRAGGED = 5;
const IN = 0.6;

export function TimelineView(props: RowsProps & { detail: RunDetail }) {
  const { detail, onFold, version } = props;
  const { run } = detail;
  const live = run.state === "running" || run.state === "paused";
  const narrow = useMedia("(max-width: 46rem)");
  const clock = useClock(live ? 1000 : 0);
  const until = Math.max(live ? clock : run.updated_at, run.started_at + 0.001);
  const whole = useMemo<Span>(() => ({ from: run.started_at, to: until }), [run.started_at, until]);
  const [view, setView] = useState<Span | null>(null);
  const span = view ?? whole;
  const lane = useRef<HTMLDivElement>(null);
  const frame = useRef<HTMLDivElement>(null);
  const zoom = (factor: number, at = (span.from + span.to) / 2) => {
    const next = zoomed(span, at, factor, whole);
    setView(next.to - next.from >= whole.to - whole.from ? null : next);
  };
  const pan = (part: number) => view && setView(moved(view, part, whole));
  useEffect(() => {
    const rows = frame.current?.querySelector<HTMLElement>(".scroll");
    if (rows) frame.current!.style.setProperty("--scrollbar", `${rows.offsetWidth - rows.clientWidth}px`);
  }, []);
  const hand = useHand(frame, lane, span, { zoom, pan, select: setView });
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "+" || event.key === "=") zoom(IN);
    else if (event.key === "-") zoom(1 / IN);
    else if (event.key === "0") setView(null);
    else if (event.shiftKey && event.key === "ArrowRight") pan(0.25);
    else if (event.shiftKey && event.key === "ArrowLeft") pan(-0.25);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const line = (row: TreeRow) => {
    const { step } = row;
    const bars = barsOf(step, span, until);
    const [first, last] = [bars[0], bars.at(-1)];
    const took = step.duration_ms ?? (step.started_at ? (until - step.started_at) * 1000 : null);
    const right = last ? last.left + last.width : 0;
    const said = `${row.name}: ${wordOf(step.state)}, ${duration(took)}, from ${moment(step.started_at)}`;
    return (
      <div class="step-line tl-line">
        <span class="tl-name">
          <Twist row={row} onFold={onFold} />
          <StepName step={step} name={row.name} />
        </span>
        <span class="tl-lane" title={oneLine(said, 200)} onDblClick={() => setView(around(step.started_at, step.ended_at ?? until, whole))}>
          {bars.map((bar, place) => (
            <span
              key={place}
              class={`tl-bar s-${bar.state}${row.children > 0 ? " inner" : ""}`}
              style={{ left: `${bar.left}%`, width: `${bar.width}%` }}
            />
          ))}
          {!first && step.started_at !== null && (
            <span class="tl-took" style={step.started_at > span.to ? { right: 0 } : { left: 0 }}>{step.started_at > span.to ? "▸" : "◂"}</span>
          )}
          {first && (
            <span class="tl-took nums" style={right > 80 ? { right: `${100 - first.left}%` } : { left: `${right}%` }}>{duration(took)}</span>
          )}
        </span>
      </div>
    );
  };
  return (
    <div class="tl" ref={frame} onKeyDownCapture={onKey}>
      <div class="axis tl-line" aria-hidden="true">
        <span />
        <div class="tl-axis" ref={lane}><Marks span={span} whole={whole} most={narrow ? 3 : 8} /></div>
      </div>
      <div class="tl-line tl-under" aria-hidden="true">
        <span />
        <div class="tl-grid">
          {idle(detail.drives, span).map((gap) => (
            <i key={gap.from} class="tl-idle" style={{ left: `${percent(gap.from, span)}%`, width: `${percent(gap.to, span) - percent(gap.from, span)}%` }} />
          ))}
          <Lines span={span} whole={whole} most={narrow ? 3 : 8} />
        </div>
      </div>
      <Rows {...props} version={version} label="Steps along the time" line={line} />
      <div class="tl-line tl-over" aria-hidden="true">
        <span />
        <div class="tl-grid"><Pointer hand={hand} whole={whole} /></div>
      </div>
      <div class="zoom">
        {view !== null && <button type="button" class="button square" aria-label="All of the time" onClick={() => setView(null)}><Icon of="fit" /></button>}
        <button type="button" class="button square" aria-label="A longer time" disabled={view === null} onClick={() => zoom(1 / IN)}><Icon of="minus" /></button>
        <button type="button" class="button square" aria-label="A shorter time" onClick={() => zoom(IN)}><Icon of="plus" /></button>
      </div>
    </div>
  );
}

function around(from: number | null, to: number, whole: Span): Span | null {
  if (from === null) return null;
  const room = Math.max(0.005, (to - from) * 0.06);
  return { from: Math.max(whole.from, from - room), to: Math.min(whole.to, to + room) };
}

interface AxisProps {
  readonly span: Span;
  readonly whole: Span;
  readonly most: number;
}

function ticks({ span, whole, most }: AxisProps) {
  const elapsed = whole.to - whole.from < ELAPSED_S;
  return ticksOf(span, most, elapsed ? whole.from : midnight(span.from));
}

function Marks(props: AxisProps) {
  const elapsed = props.whole.to - props.whole.from < ELAPSED_S;
  return (
    <>
      {ticks(props).map(({ at, left, apart }) => (
        <span key={at} style={{ left: `${left}%` }}>{elapsed ? duration((at - props.whole.from) * 1000) : mark(at, apart)}</span>
      ))}
    </>
  );
}

function Lines(props: AxisProps) {
  return <>{ticks(props).map(({ at, left }) => <i key={at} class="tl-tick" style={{ left: `${left}%` }} />)}</>;
}

// -- the pointer -----------------------------------------------------------------------------------

interface Hand {
  /** Told where the pointer is, and where it went down: a part of the lane; null: nowhere. */
  move: (at: number | null, from: number | null) => void;
  span: Span;
}

interface Does {
  readonly zoom: (factor: number, at: number) => void;
  readonly pan: (part: number) => void;
  readonly select: (span: Span) => void;
}

/** What a mouse and fingers do on the lanes: show a time, zoom, choose a part, move along. */
function useHand(frame: { current: HTMLDivElement | null }, lane: { current: HTMLDivElement | null }, span: Span, does: Does): Hand {
  const hand = useRef<Hand>({ move: () => {}, span }).current;
  hand.span = span;
  const now = useRef(does);
  now.current = does;
  useEffect(() => {
    const box = frame.current;
    if (!box) return;
    let down: number | null = null;
    let dragged = false;
    let touched: number | null = null;
    const partAt = (x: number): number => {
      const rect = lane.current!.getBoundingClientRect();
      return (x - rect.left) / rect.width;
    };
    const timeAt = (part: number) => hand.span.from + part * (hand.span.to - hand.span.from);
    const onWheel = (event: WheelEvent) => {
      const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (!event.ctrlKey && !event.metaKey && !sideways) return;
      event.preventDefault();
      if (sideways) now.current.pan((event.deltaX || event.deltaY) / 800);
      else now.current.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 200))), timeAt(partAt(event.clientX)));
    };
    const onDown = (event: PointerEvent) => {
      const part = partAt(event.clientX);
      if (event.button !== 0 || part < 0 || part > 1 || (event.target as Element).closest("button, .axis")) return;
      dragged = false;
      if (event.pointerType === "mouse") down = part;
      else touched = part;
    };
    const onMove = (event: PointerEvent) => {
      const part = partAt(event.clientX);
      if (touched !== null) {
        now.current.pan(touched - part);
        touched = part;
        return;
      }
      if (event.pointerType !== "mouse") return;
      if (down !== null && Math.abs(part - down) * lane.current!.clientWidth > DRAGGED) dragged = true;
      hand.move(part >= 0 && part <= 1 ? part : null, dragged ? down : null);
    };
    const onUp = (event: PointerEvent) => {
      const part = Math.max(0, Math.min(1, partAt(event.clientX)));
      if (dragged && down !== null) now.current.select({ from: timeAt(Math.min(down, part)), to: timeAt(Math.max(down, part)) });
      down = touched = null;
      hand.move(null, null);
    };
    const onClick = (event: MouseEvent) => {
      if (!dragged) return;
      dragged = false;
      event.stopPropagation(); // it was no click on a row
    };
    const onLeave = () => hand.move(null, null);
    box.addEventListener("wheel", onWheel, { passive: false });
    box.addEventListener("pointerdown", onDown);
    box.addEventListener("pointermove", onMove);
    box.addEventListener("pointerleave", onLeave);
    box.addEventListener("click", onClick, { capture: true });
    addEventListener("pointerup", onUp);
    return () => {
      box.removeEventListener("wheel", onWheel);
      box.removeEventListener("pointerdown", onDown);
      box.removeEventListener("pointermove", onMove);
      box.removeEventListener("pointerleave", onLeave);
      box.removeEventListener("click", onClick, { capture: true });
      removeEventListener("pointerup", onUp);
    };
  }, []);
  return hand;
}

/** The time under the pointer, and the part that is being chosen. */
function Pointer({ hand, whole }: { hand: Hand; whole: Span }) {
  const [at, setAt] = useState<{ at: number | null; from: number | null }>({ at: null, from: null });
  useEffect(() => {
    hand.move = (part, from) => setAt((before) => (before.at === part && before.from === from ? before : { at: part, from }));
    return () => {
      hand.move = () => {};
    };
  }, [hand]);
  if (at.at === null) return null;
  const { span } = hand;
  const time = span.from + at.at * (span.to - span.from);
  const left = at.from === null ? at.at : Math.min(at.at, at.from);
  const width = at.from === null ? 0 : Math.abs(at.at - at.from);
  return (
    <>
      {width > 0 && <i class="tl-chosen" style={{ left: `${100 * left}%`, width: `${100 * width}%` }} />}
      <i class="tl-here" style={{ left: `${100 * at.at}%` }} />
      <span class={at.at > 0.6 ? "tl-when left" : "tl-when"} style={{ left: `${100 * at.at}%` }}>
        {moment(time)} <span class="soft">+{duration((time - whole.from) * 1000)}</span>
      </span>
    </>
  );
}
