// One run: how it stands, what it asks, and its steps.

import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import type { RunDetail, StepState } from "./api";
import { Attention } from "./attention";
import { EventPane } from "./event_pane";
import { GraphView } from "./graph_view";
import { Head } from "./head";
import { useChanges, useFocus, useKeys } from "./hooks";
import { wordOf } from "./icons";
import { LogSieve, LogView, type RunPlace, useLog } from "./log_view";
import { go } from "./navigation";
import { hashOf, type View } from "./router";
import { RunStore } from "./run_store";
import { FILTERS, Sieve } from "./sieve";
import type { Source } from "./source";
import { StepPane } from "./step_pane";
import { TimelineView } from "./timeline_view";
import { reasons, rowsOf, type Filter } from "./tree";
import { TreeView } from "./tree_view";
import { Foreign, Loading } from "./ui";
import { Values } from "./values";
import { waitsByPath } from "./waits";

const VIEWS: readonly [View, string][] = [
  ["tree", "Tree"],
  ["timeline", "Timeline"],
  ["graph", "Graph"],
  ["log", "Log"],
  ["run", "Inputs and result"],
];

export function RunPage({ source, place, onLine }: { source: Source; place: RunPlace; onLine: (open: boolean | null) => void }) {
  const store = useMemo(() => new RunStore(source, place.run), [source, place.run]);
  useEffect(() => {
    void store.open();
    return () => store.close();
  }, [store]);
  const version = useChanges(store);
  useEffect(() => onLine(store.online), [store.online]);
  useEffect(() => {
    const state = store.run ? `${wordOf(store.run.state)} · ` : "";
    document.title = `${state}${place.run} · handrail`;
  }, [store.run?.state, place.run]);

  if (store.problem && !store.detail) {
    return (
      <main>
        <div class="empty">
          <h1>{store.problem.status === 404 ? "There is no such run" : "The run could not be read"}</h1>
          <p><Foreign text={store.problem.message} /></p>
          <p>
            {store.problem.status !== 404 && (
              <button type="button" class="button" onClick={() => void store.open()}>Try again</button>
            )}{" "}
            <a href="#/">All runs</a>
          </p>
        </div>
      </main>
    );
  }
  if (!store.detail) return <main><Loading /></main>;
  return <Run store={store} place={place} version={version} detail={store.detail} />;
}

interface RunProps {
  readonly store: RunStore;
  readonly place: RunPlace;
  readonly version: number;
  readonly detail: RunDetail;
}

function Run({ store, place, version, detail }: RunProps) {
  const { tree } = store;
  const [folds, setFolds] = useState<ReadonlyMap<string, boolean>>(new Map());
  const [text, setText] = useState("");
  const [only, setOnly] = useState("");
  const filter = useMemo<Filter>(() => {
    const states: readonly StepState[] = FILTERS.find(([name]) => name === only)?.[1] ?? [];
    return { text, states: new Set(states) };
  }, [text, only]);
  const rows = useMemo(() => rowsOf(tree, folds, filter), [tree, version, folds, filter]);
  const [at, setAt] = useState<string | null>(place.step);

  const select = useCallback((path: string) => {
    setAt(path);
    go({ ...place, step: path }, place.step !== null); // to go back from the first one closes it
  }, [place]);
  const focus = useFocus(place.step);
  const answer = (path: string) => {
    select(path);
    focus(path, ".pane form :is(input, textarea, select)");
  };
  const log = useLog(store, place);
  const close = useCallback(() => {
    // Behind the step that was opened from a line of the log is that line.
    const line = place.step === null ? null : (place.log?.line ?? null);
    go({ ...place, step: null, ...(place.log ? { log: { ...place.log, line } } : {}) }, true);
    document.querySelector<HTMLElement>("[data-main]")?.focus();
  }, [place]);
  const fold = useCallback((path: string, open: boolean) => {
    setFolds((before) => new Map(before).set(path, open));
  }, []);
  useEffect(() => {
    if (place.step === null) return;
    setAt(place.step);
    // Somebody came here by its address: open what it is in.
    const above = tree.above(place.step);
    setFolds((before) => new Map([...before, ...above.map((path) => [path, true] as const)]));
  }, [place.step, tree]);
  useRunKeys(place, close);

  const shared = {
    tree, rows, version,
    at: at ?? place.step,
    onAt: select,
    onFold: fold,
    onEnter: (path: string) => {
      select(path);
      focus(path, ".pane-body");
    },
  };
  const waits = useMemo(() => waitsByPath(detail.run.waits_for), [detail.run.waits_for]);
  const leaves = useMemo(() => tree.leaves(), [tree, version]);
  const why = useMemo(() => (only === "failed" ? reasons(tree) : []), [tree, version, only]);
  const first = () => {
    document.querySelector<HTMLElement>("[data-main]")?.focus();
    if (rows[0] && !rows.some((row) => row.path === at)) select(rows[0].path);
  };
  const sifted = place.view === "tree" || place.view === "timeline";
  return (
    <main>
      <Head store={store} detail={detail} leaves={leaves} />
      <Attention store={store} detail={detail} onOpen={answer} />
      <div class="tabs">
        <Views place={place} />
        {log && <LogSieve log={log} />}
        {sifted && <Sieve text={text} onSearch={setText} only={only} onOnly={setOnly} leaves={leaves} reasons={why} onFirst={first} />}
      </div>
      <div class="body">
        <div class="left" id="view" role="tabpanel" aria-labelledby={`tab-${place.view}`}>
          {place.view === "run" ? (
            <Values detail={detail} />
          ) : log ? (
            <LogView run={store} detail={detail} log={log} />
          ) : place.view === "graph" ? (
            <GraphView store={store} tree={tree} version={version} folds={folds} at={shared.at} onAt={select} onFold={fold} />
          ) : rows.length === 0 ? (
            <div class="empty"><p>{tree.nodes.size === 0 ? "No step has begun." : "No step fits."}</p></div>
          ) : place.view === "timeline" ? (
            <TimelineView {...shared} detail={detail} />
          ) : (
            <TreeView {...shared} waits={waits} />
          )}
        </div>
        {place.step === null && log && log.place.line !== null && <EventPane store={store} place={place} line={log.place.line} onClose={close} />}
        {place.step !== null && <StepPane key={place.step} store={store} detail={detail} path={place.step} onClose={close} onStep={select} />}
      </div>
    </main>
  );
}

function useRunKeys(place: RunPlace, close: () => void): void {
  useKeys((event) => {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
    if (document.querySelector("dialog[open]")) return;
    const view = VIEWS[Number(event.key) - 1]?.[0];
    if (view) go({ ...place, view }, true);
    else if (event.key === "Escape" && (place.step !== null || place.log?.line)) close();
    else if (event.key === "a") {
      document.querySelector<HTMLElement>("[data-gate] :is(input, textarea, select, button)")?.focus();
      event.preventDefault();
    }
  });
}

function Views({ place }: { place: RunPlace }) {
  const onKey = (event: KeyboardEvent) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    const here = VIEWS.findIndex(([view]) => view === place.view);
    const [view] = VIEWS[(here + move + VIEWS.length) % VIEWS.length]!;
    go({ ...place, view }, true);
    document.getElementById(`tab-${view}`)?.focus();
  };
  return (
    <div class="views" role="tablist" aria-label="Views of the run" onKeyDown={onKey}>
      {VIEWS.map(([view, name]) => (
        <a
          key={view}
          role="tab"
          id={`tab-${view}`}
          aria-selected={place.view === view}
          aria-controls="view"
          tabIndex={place.view === view ? 0 : -1}
          href={hashOf({ ...place, view })}
          onClick={(event) => {
            if (event.metaKey || event.ctrlKey || event.shiftKey) return;
            event.preventDefault();
            go({ ...place, view }, true);
          }}
        >
          {name}
        </a>
      ))}
    </div>
  );
}
