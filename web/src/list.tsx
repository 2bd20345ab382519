// The list of runs.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import type { RunRow, RunState } from "./api";
import { dollars, duration, moment, relative, whole } from "./format";
import { StatePill, wordOf } from "./icons";
import { go } from "./navigation";
import { hashOf, type Place } from "./router";
import { useChanges, useClock, useMedia } from "./hooks";
import type { RunList } from "./run_list";
import { SearchBox } from "./search_box";
import { oneLine } from "./text";
import { Foreign, Loading } from "./ui";
import { Virtual } from "./virtual";
import { waitText } from "./waits";

const CHIPS: readonly RunState[] = ["running", "paused", "suspended", "dead", "failed", "succeeded", "cancelled", "damaged"];
const NARROW = "(max-width: 46rem)";
/** Bars of the last runs: from so many runs on, and at most so many. */
const FEW = 6;
const MOST_BARS = 120;

function why(run: RunRow, now: number): string {
  if (run.waits_for.length > 0) {
    const first = waitText(run.waits_for[0]!, now);
    return run.waits_for.length > 1 ? `${first} · and ${run.waits_for.length - 1} more` : first;
  }
  if (run.unread) return run.unread === "reading" ? "reading its record…" : `its record cannot be read now: ${run.unread}`;
  return run.error ?? run.at_work.join(", ");
}

export function ListPage({ list, place }: { list: RunList; place: Extract<Place, { page: "list" }> }) {
  useChanges(list);
  const now = useClock(5000);
  const [at, setAt] = useState(0);
  const [moved, setMoved] = useState(0);
  const [query, setQuery] = useState(place.query);
  const narrow = useMedia(NARROW);
  const box = useRef<HTMLDivElement>(null);

  useEffect(() => list.show(place.query, place.state), [list, place.query, place.state]);
  useEffect(() => {
    document.title = "Runs · handrail";
  }, []);
  useEffect(() => {
    if (query === place.query) return;
    const timer = setTimeout(() => go({ ...place, query }, true), 200);
    return () => clearTimeout(timer);
  }, [query]);

  const runs = list.runs;
  const onKey = (event: KeyboardEvent) => {
    const moves: { [key: string]: number } = {
      j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -runs.length, End: runs.length,
    };
    const move = moves[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (move !== undefined) {
      event.preventDefault();
      setAt(Math.max(0, Math.min(runs.length - 1, at + move)));
      setMoved((n) => n + 1);
    }
  };
  useEffect(() => {
    if (moved > 0) box.current?.querySelector<HTMLElement>(".line.at a")?.focus({ preventScroll: true });
  }, [moved]);
  const onEnd = useCallback(() => list.more(), [list]);

  return (
    <main>
      <div class="tools">
        <h1 class="unseen">Runs</h1>
        <SearchBox text={query} onSearch={setQuery} hint="Search runs" label="Search runs by id, workflow, label" onFirst={() => setMoved((n) => n + 1)} />
        <div class="chips" role="group" aria-label="Show only">
          {CHIPS.filter((state) => (list.counts[state] ?? 0) > 0 || state === place.state).map((state) => (
            <button
              key={state}
              type="button"
              class="chip"
              aria-pressed={state === place.state}
              onClick={() => go({ ...place, state: state === place.state ? "" : state }, true)}
            >
              <b>{whole(list.counts[state] ?? 0)}</b> {wordOf(state)}
            </button>
          ))}
        </div>
        {!narrow && runs.length >= FEW && <Recent runs={runs} now={now} />}
      </div>
      {runs.length > 0 ? (
        <>
          <div class="runs-head" aria-hidden="true">
            <span>Status</span><span>Run</span><span>Now, or why it ended</span>
            <span class="end">Started</span><span class="end">Took</span><span class="end">Cost</span>
          </div>
          <Virtual
            count={runs.length}
            height={narrow ? 60 : 50}
            at={moved > 0 ? at : -1}
            box={box}
            idOf={(index) => `run-${runs[index]!.run_id}`}
            onEnd={onEnd}
            props={{
              role: "list",
              "aria-label": "Runs",
              tabIndex: -1,
              onKeyDown: onKey,
            }}
            rowProps={(index) => ({
              role: "listitem",
              "aria-setsize": list.total,
              "aria-posinset": index + 1,
            })}
            row={(index) => <Line run={runs[index]!} now={now} here={index === at} />}
          />
        </>
      ) : (
        <Nothing list={list} filtered={place.query !== "" || place.state !== ""} />
      )}
    </main>
  );
}

/** The last runs as bars, the newest to the right: how long each took, and how it stands. */
function Recent({ runs, now }: { runs: readonly RunRow[]; now: number }) {
  const shown = runs.slice(0, MOST_BARS).reverse();
  const long = (run: RunRow) => Math.log10(1 + (run.duration_ms ?? (now - run.started_at) * 1000) / 100);
  const longest = Math.max(0.1, ...shown.map(long));
  return (
    <div class="recent" aria-hidden="true">
      {shown.map((run) => (
        <a
          key={run.run_id}
          class={`s-${run.state}`}
          tabIndex={-1}
          href={hashOf({ page: "run", run: run.run_id, view: "tree", step: null })}
          title={oneLine(`${run.workflow} ${run.run_id}: ${wordOf(run.state)}, ${duration(run.duration_ms)}, ${relative(run.started_at, now)}`)}
        >
          <i style={{ height: `${Math.round(4 + (26 * long(run)) / longest)}px` }} />
        </a>
      ))}
    </div>
  );
}

/** Labels that say where a run's code is: the run's own page shows them. */
const OF_THE_COMMAND = new Set(["target", "executor", "folder"]);

function Line({ run, now, here }: { run: RunRow; now: number; here: boolean }) {
  const text = why(run, now);
  const took = run.duration_ms ?? (run.state === "running" ? (now - run.started_at) * 1000 : null);
  const labels = Object.entries(run.labels).filter(([name]) => !OF_THE_COMMAND.has(name));
  return (
    <a class="run-line" tabIndex={here ? 0 : -1} href={hashOf({ page: "run", run: run.run_id, view: "tree", step: null })}>
      <StatePill state={run.state} />
      <span class="who">
        <span class="names">
          <b class="cut"><Foreign text={run.workflow} /></b>
          {labels.slice(0, 3).map(([name, value]) => (
            <span key={name} class="tag cut wideonly"><Foreign text={oneLine(`${name}=${value}`, 40)} /></span>
          ))}
        </span>
        <span class="mono soft cut"><Foreign text={run.run_id} /></span>
      </span>
      <span class={run.state === "failed" ? "why cut bad" : "why cut soft"} title={oneLine(text, 500)}><Foreign text={oneLine(text)} /></span>
      <span class="when end soft nums cut" title={moment(run.started_at)}>{relative(run.started_at, now)}</span>
      <span class="took end nums cut">{duration(took)}</span>
      <span class="cost end nums cut">{dollars(run.cost_usd)}</span>
    </a>
  );
}

function Nothing({ list, filtered }: { list: RunList; filtered: boolean }) {
  if (list.problem) {
    return (
      <div class="empty">
        <h1>The runs could not be read</h1>
        <p><Foreign text={list.problem} /></p>
        <p><button type="button" class="button" onClick={() => list.again()}>Try again</button></p>
      </div>
    );
  }
  if (!list.loaded) return <Loading />;
  if (filtered) return <div class="empty"><h1>No run fits</h1><p><a href="#/">Show all runs</a></p></div>;
  return (
    <div class="empty">
      <h1>No runs yet</h1>
      <p>They are shown here as soon as there are any.</p>
      <pre class="block">handrail run workflow.py</pre>
    </div>
  );
}
