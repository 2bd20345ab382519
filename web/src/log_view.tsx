// The record of a run as a list of lines, an event each: live, and searched by the server.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { LogLine, Only, RunDetail } from "./api";
import { clockTime, whole } from "./format";
import { useChanges, useFocus, useMedia } from "./hooks";
import { Icon, StateIcon } from "./icons";
import { LogStore } from "./log_store";
import { go } from "./navigation";
import { type LogPlace, type Place, WHOLE_LOG } from "./router";
import type { RunStore } from "./run_store";
import { SearchBox } from "./search_box";
import { oneLine } from "./text";
import { Foreign, Loading } from "./ui";
import { Virtual } from "./virtual";

export type RunPlace = Extract<Place, { page: "run" }>;

const NARROW = "(max-width: 46rem)";
const TYPED_MS = 200;
const ONLY: readonly Exclude<Only, "">[] = ["errors", "warnings", "people"];
const LIVE: ReadonlySet<string> = new Set(["running", "paused"]);

export interface Log {
  readonly store: LogStore;
  readonly place: LogPlace;
  readonly change: (more: Partial<LogPlace>) => void;
}

/** The log of a run while it is looked at; null in other views. */
export function useLog(run: RunStore, place: RunPlace): Log | null {
  const shown = place.view === "log";
  const store = useMemo(() => (shown ? new LogStore(run.source, run.id) : null), [run, shown]);
  useEffect(() => () => store?.close(), [store]);
  if (store === null) return null;
  const here = place.log ?? WHOLE_LOG;
  const change = (more: Partial<LogPlace>) => {
    const log = { ...here, ...more };
    const step = more.line === undefined ? place.step : null;
    go({ ...place, step, log }, more.line === undefined || here.line !== null || place.step !== null);
  };
  return { store, place: here, change };
}

/** What of the log is shown: by words, by how grave it is. */
export function LogSieve({ log }: { log: Log }) {
  const { store, place, change } = log;
  useChanges(store);
  const [text, setText] = useState(place.words);
  useEffect(() => setText(place.words), [place.words]);
  useEffect(() => {
    if (text === place.words) return;
    const timer = setTimeout(() => change({ words: text }), TYPED_MS);
    return () => clearTimeout(timer);
  }, [text]);
  const record = store.source.recordOf(store.id);
  return (
    <div class="sieve">
      {store.leftOut > 0 && <span class="note wideonly">without {whole(store.leftOut)} lines of what went well</span>}
      <div class="chips" role="group" aria-label="Show only">
        {ONLY.map((only) => {
          const n = store.counts[only];
          if (n === 0 && place.only !== only) return null;
          return (
            <button key={only} type="button" class="chip" aria-pressed={place.only === only} onClick={() => change({ only: place.only === only ? "" : only })}>
              <b>{whole(n)}</b> {only}
            </button>
          );
        })}
      </div>
      <SearchBox
        text={text}
        onSearch={setText}
        hint="Search the log"
        label="Search the log by text, path, kind"
        onFirst={() => {
          change({ words: text });
          document.querySelector<HTMLElement>("[data-main]")?.focus();
        }}
      />
      {record !== null && (
        <a class="button bare square" href={record} download aria-label="Download the record, a JSON object a line" title="Download the record (JSON lines)">
          <Icon of="download" />
        </a>
      )}
    </div>
  );
}

interface ViewProps {
  readonly run: RunStore;
  readonly detail: RunDetail;
  readonly log: Log;
}

export function LogView({ run, detail, log }: ViewProps) {
  const { store, place, change } = log;
  const version = useChanges(store);
  const narrow = useMedia(NARROW);
  const height = narrow ? 46 : 26;
  const [at, setAt] = useState(-1);
  const box = useRef<HTMLDivElement>(null);
  const focus = useFocus(place.line);
  const follows = useRef(LIVE.has(detail.run.state) && place.line === null);
  /** The line that is shown beside the list; and the place of one that is on its way there. */
  const chosen = useRef<number | null>(null);
  const awaited = useRef<number | null>(null);

  useEffect(() => {
    let gone = false;
    const { line } = place;
    chosen.current = line;
    awaited.current = null;
    void store.seek(place, line).then((found) => {
      // Meanwhile somebody may have gone to another line.
      if (!gone && chosen.current === line && awaited.current === null) setAt(found ?? -1);
    });
    return () => {
      gone = true;
    };
  }, [store, place.words, place.only]);
  useEffect(() => {
    if (place.line === chosen.current) return; // a key or a click led here
    chosen.current = place.line;
    if (place.line === null) setAt(-1);
    else void store.seek(place, place.line).then((found) => setAt(found ?? -1));
  }, [place.line]);
  useEffect(() => store.grow(), [store, run.lastSeq]);
  // Who is at the end stays there while it grows.
  useLayoutEffect(() => {
    const element = box.current;
    if (element && follows.current) element.scrollTop = element.scrollHeight;
  }, [store.total, height]);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = () => {
      follows.current = element.scrollHeight - element.scrollTop - element.clientHeight < height;
    };
    element.addEventListener("scroll", look, { passive: true });
    return () => element.removeEventListener("scroll", look);
  }, [store.total > 0, height]);

  const choose = (index: number) => {
    const line = store.line(index);
    setAt(index);
    awaited.current = line ? null : index;
    if (!line) return;
    chosen.current = line.seq;
    change({ line: line.seq });
  };
  useEffect(() => {
    if (awaited.current !== null && awaited.current < store.total && store.line(awaited.current)) choose(awaited.current);
  }, [version]);
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" && at >= 0) {
      event.preventDefault();
      focus(store.line(at)?.seq ?? null, ".pane-body");
      return;
    }
    const move = MOVES[event.key];
    if (move === undefined) return;
    event.preventDefault();
    choose(Math.max(0, Math.min(store.total - 1, at + move)));
  };

  if (store.problem) return <div class="empty"><p><Foreign text={store.problem} /></p></div>;
  if (!store.loaded) return <Loading />;
  if (store.total === 0) return <div class="empty"><p>No line fits.</p></div>;
  const days = new Date(detail.run.started_at * 1000).toDateString() !== new Date(detail.run.updated_at * 1000).toDateString();
  return (
    <Virtual
      count={store.total}
      height={height}
      at={at}
      box={box}
      idOf={(index) => `line-${index}`}
      props={{
        role: "listbox",
        "aria-label": "Log",
        "data-main": true,
        "aria-activedescendant": at >= 0 ? `line-${at}` : undefined,
        onKeyDown: onKey,
      }}
      rowProps={(index) => ({
        role: "option",
        "aria-selected": index === at,
        "aria-setsize": store.total,
        "aria-posinset": index + 1,
        onClick: () => choose(index),
      })}
      row={(index) => <Line line={store.line(index)} days={days} />}
    />
  );
}

const FAR = 1e9;
const MOVES: { readonly [key: string]: number } = {
  j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -FAR, End: FAR,
};

function Line({ line, days }: { line: LogLine | null; days: boolean }) {
  if (line === null) return <div class="log-line"><span class="soft">…</span></div>;
  return (
    <div class={`log-line ${line.level}`}>
      <span class="when nums">{clockTime(line.at, days)}</span>
      <Level line={line} />
      <span class="where cut"><Foreign text={oneLine(line.path, 160)} /></span>
      <span class="what cut" title={oneLine(line.text, 600)}><Foreign text={oneLine(line.text, 400)} /></span>
      <span class="kind cut">{line.type}</span>
    </div>
  );
}

export function Level({ line }: { line: LogLine }) {
  if (line.level === "info") return <span class="icon" />;
  return (
    <>
      {line.level === "error" ? <StateIcon state="failed" /> : line.level === "warning" ? <StateIcon state="interrupted" /> : <Icon of="person" />}
      <span class="unseen">{line.level}: </span>
    </>
  );
}
