// One run: how it stands, what it asks, and its steps.

import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { GateForm, RunActions, SignalForm } from "./actions";
import type { RunDetail, StepState } from "./api";
import { count, dollars, duration, many, moment, relative, whole } from "./format";
import { GraphView } from "./graph_view";
import { useChanges, useClock } from "./hooks";
import { Icon, StatePill, wordOf } from "./icons";
import { go } from "./navigation";
import { hashOf, type Place, type View } from "./router";
import { RunStore } from "./run_store";
import type { Source } from "./source";
import { StepPane } from "./step_pane";
import { pretty } from "./text";
import { rowsOf, type Filter } from "./tree";
import { TimelineView, TreeView } from "./tree_view";
import { waitText } from "./list";
import { CopyButton, Foreign, TextBlock } from "./ui";

type RunPlace = Extract<Place, { page: "run" }>;

const VIEWS: readonly [View, string][] = [
  ["tree", "Tree"],
  ["timeline", "Timeline"],
  ["graph", "Graph"],
  ["run", "Inputs and result"],
];
const FILTERS: readonly [string, readonly StepState[]][] = [
  ["running", ["running"]],
  ["waiting", ["waiting"]],
  ["failed", ["failed", "interrupted"]],
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
          <p><a href="#/">All runs</a></p>
        </div>
      </main>
    );
  }
  if (!store.detail) return <main><div class="empty" aria-busy="true"><p>Loading…</p></div></main>;
  return <Run store={store} place={place} version={version} detail={store.detail} />;
}

function Run({ store, place, version, detail }: { store: RunStore; place: RunPlace; version: number; detail: RunDetail }) {
  const { tree } = store;
  const [folds, setFolds] = useState<ReadonlyMap<string, boolean>>(new Map());
  const [text, setText] = useState("");
  const [only, setOnly] = useState("");
  const filter = useMemo<Filter>(
    () => ({ text, states: new Set(FILTERS.find(([name]) => name === only)?.[1] ?? []) }),
    [text, only],
  );
  const rows = useMemo(() => rowsOf(tree, folds, filter), [tree, version, folds, filter]);
  const [at, setAt] = useState<string | null>(place.step);

  const select = useCallback((path: string) => {
    setAt(path);
    go({ ...place, step: path }, true);
  }, [place]);
  const close = useCallback(() => {
    go({ ...place, step: null }, true);
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
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
      if (document.querySelector("dialog[open]")) return;
      const view = VIEWS[Number(event.key) - 1]?.[0];
      if (view) go({ ...place, view }, true);
      else if (event.key === "Escape" && place.step !== null) close();
      else if (event.key === "a") document.querySelector<HTMLElement>("[data-gate] :is(input, textarea, select)")?.focus();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [place, close]);

  const shared = {
    tree, rows, version,
    at: at ?? place.step,
    onAt: select,
    onFold: fold,
    onEnter: (path: string) => {
      select(path);
      document.querySelector<HTMLElement>(".pane-body")?.focus();
    },
  };
  const leaves = useMemo(() => tree.leaves(), [tree, version]);
  return (
    <main>
      <Head store={store} detail={detail} leaves={leaves} />
      <Callouts store={store} detail={detail} />
      <div class="tabs" role="tablist" aria-label="Views of the run" onKeyDown={(event) => arrows(event, place)}>
        {VIEWS.map(([view, name]) => (
          <button
            key={view}
            type="button"
            role="tab"
            id={`tab-${view}`}
            aria-selected={place.view === view}
            aria-controls="view"
            tabIndex={place.view === view ? 0 : -1}
            onClick={() => go({ ...place, view }, true)}
          >
            {name}
          </button>
        ))}
      </div>
      <div class="body">
        <div class="left" id="view" role="tabpanel" aria-labelledby={`tab-${place.view}`}>
          {(place.view === "tree" || place.view === "timeline") && (
            <div class="sieve">
              <div class="search">
                <Icon of="search" />
                <input
                  type="search"
                  data-search
                  placeholder="Search steps"
                  aria-label="Search steps by path, kind, error"
                  value={text}
                  onInput={(event) => setText(event.currentTarget.value)}
                  onKeyDown={(event) => {
                    if (event.key !== "ArrowDown" && event.key !== "Enter") return;
                    event.preventDefault();
                    document.querySelector<HTMLElement>("[data-main]")?.focus();
                    if (rows[0] && !rows.some((row) => row.path === at)) select(rows[0].path);
                  }}
                />
                <kbd aria-hidden="true">/</kbd>
              </div>
              <div class="chips" role="group" aria-label="Show only">
                {FILTERS.map(([name, states]) => {
                  const n = states.reduce((sum, state) => sum + (leaves[state] ?? 0), 0);
                  if (n === 0 && only !== name) return null;
                  return (
                    <button key={name} type="button" class="chip" aria-pressed={only === name} onClick={() => setOnly(only === name ? "" : name)}>
                      <b>{whole(n)}</b> {name}
                    </button>
                  );
                })}
              </div>
            </div>
          )}
          {place.view === "run" ? (
            <Values detail={detail} />
          ) : place.view === "graph" ? (
            <GraphView store={store} tree={tree} version={version} folds={folds} at={shared.at} onAt={select} onFold={fold} />
          ) : rows.length === 0 ? (
            <div class="empty"><p>{tree.nodes.size === 0 ? "No step has begun." : "No step fits."}</p></div>
          ) : place.view === "timeline" ? (
            <TimelineView
              {...shared}
              started={detail.run.started_at}
              end={detail.run.state === "running" || detail.run.state === "paused" ? null : detail.run.updated_at}
            />
          ) : (
            <TreeView {...shared} />
          )}
        </div>
        {place.step !== null && <StepPane key={place.step} store={store} path={place.step} onClose={close} />}
      </div>
    </main>
  );
}

function arrows(event: KeyboardEvent, place: RunPlace): void {
  const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (move === undefined) return;
  event.preventDefault();
  const here = VIEWS.findIndex(([view]) => view === place.view);
  const [view] = VIEWS[(here + move + VIEWS.length) % VIEWS.length]!;
  go({ ...place, view }, true);
  document.getElementById(`tab-${view}`)?.focus();
}

function Head({ store, detail, leaves }: { store: RunStore; detail: RunDetail; leaves: Partial<Record<StepState, number>> }) {
  const { run } = detail;
  const going = run.state === "running" || run.state === "paused";
  const now = useClock(going ? 1000 : 30_000);
  const took = run.duration_ms ?? (going ? (now - run.started_at) * 1000 : null);
  const labels = Object.entries(run.labels);
  const all = Object.values(leaves).reduce((sum, n) => sum + n, 0);
  const done = all - (leaves.running ?? 0) - (leaves.waiting ?? 0) - (leaves.open ?? 0) - (leaves.interrupted ?? 0);
  return (
    <div class="head">
      <div class="title">
        <StatePill state={run.state} />
        <h1 class="cut"><Foreign text={run.workflow} /></h1>
        <span class="mono soft cut"><Foreign text={run.run_id} /></span>
        <CopyButton text={run.run_id} what="the run's id" />
        <RunActions store={store} run={run} />
      </div>
      <div class="facts">
        <span title={moment(run.started_at)}>began <b>{relative(run.started_at, now)}</b></span>
        {took !== null && <span>{run.duration_ms === null ? "for" : "took"} <b>{duration(took)}</b></span>}
        {all > 0 && <span><b>{whole(done)} of {whole(all)}</b> steps done</span>}
        {leaves.failed ? <span class="s-failed">{leaves.failed} failed</span> : null}
        {run.launches ? <span><b>{many(run.launches, "launch", "launches")}</b></span> : null}
        {run.tokens ? <span><b>{count(run.tokens)}</b> tokens</span> : null}
        {run.cost_usd !== null && <span><b>{dollars(run.cost_usd)}</b></span>}
        {run.holder && <span>driven by <b>{run.holder.pid}</b> on <Foreign text={run.holder.host} /></span>}
        {run.forked_from && (
          <span>
            forked from{" "}
            <a href={hashOf({ page: "run", run: run.forked_from[0], view: "tree", step: null })}><Foreign text={run.forked_from[0]} /></a>
            {run.forked_from[1] && <> at <Foreign text={run.forked_from[1]} /></>}
            {" · "}
            <a href={hashOf({ page: "diff", a: run.forked_from[0], b: run.run_id })}>compare</a>
          </span>
        )}
        {labels.map(([name, value]) => <span key={name} class="tag"><Foreign text={`${name}=${value}`} /></span>)}
        {store.source.frozenAt !== null && <span>as it was {moment(store.source.frozenAt)}</span>}
      </div>
    </div>
  );
}

function Callouts({ store, detail }: { store: RunStore; detail: RunDetail }) {
  const now = useClock(10_000);
  const { run } = detail;
  const others = run.waits_for.filter((wait) => wait.kind === "time");
  return (
    <div class="callouts">
      {run.state === "dead" && (
        <div class="callout wait"><p>No process is running it. What is recorded stays; resume it to go on.</p></div>
      )}
      {detail.error && (
        <div class="callout bad">
          <p class="foreign">
            {detail.failed_step && (
              <a href={hashOf({ page: "run", run: run.run_id, view: "tree", step: detail.failed_step })}><Foreign text={detail.failed_step} /></a>
            )}
            {detail.failed_step ? ": " : ""}
            <Foreign text={detail.error.length > 600 ? `${detail.error.slice(0, 600)}…` : detail.error} />
          </p>
        </div>
      )}
      {detail.needs.map((need) => <div key={need} class="callout wait"><p><b>A person is needed:</b> <Foreign text={need} /></p></div>)}
      {detail.gates.map((gate) => <GateForm key={`${gate.path} ${gate.since}`} gate={gate} store={store} now={now} />)}
      {detail.signals.map((signal) => <SignalForm key={signal.name} signal={signal} store={store} />)}
      {others.length > 0 && (
        <div class="callout">
          <p class="note"><Foreign text={waitText(others[0]!, now)} />{others.length > 1 ? ` · and ${others.length - 1} more` : ""}</p>
        </div>
      )}
    </div>
  );
}

function Values({ detail }: { detail: RunDetail }) {
  return (
    <div class="page" tabIndex={0} role="region" aria-label="Inputs and result">
      <TextBlock title="Inputs" text={pretty(detail.inputs ?? {})} />
      {detail.value !== null && detail.value !== undefined && <TextBlock title="Result" text={pretty(detail.value)} />}
      {detail.error && <TextBlock title="Error" text={detail.error} bad />}
    </div>
  );
}
