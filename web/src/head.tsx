// A run in a few lines: how it stands, since when, what it has cost.

import { RunActions } from "./actions";
import type { RunDetail } from "./api";
import { count, dollars, duration, many, moment, relative, whole } from "./format";
import { useClock } from "./hooks";
import { StatePill } from "./icons";
import { hashOf } from "./router";
import type { RunStore } from "./run_store";
import { TallyBar } from "./step_line";
import type { Tally } from "./tree";
import { CopyButton, Foreign } from "./ui";

export function Head({ store, detail, leaves }: { store: RunStore; detail: RunDetail; leaves: Tally }) {
  const { run } = detail;
  const going = run.state === "running" || run.state === "paused";
  const now = useClock(going ? 1000 : 30_000);
  const took = run.duration_ms ?? (going ? (now - run.started_at) * 1000 : null);
  const all = Object.values(leaves).reduce((sum, n) => sum + n, 0);
  const open = (leaves.running ?? 0) + (leaves.waiting ?? 0) + (leaves.open ?? 0) + (leaves.interrupted ?? 0);
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
        {all > 0 && (
          <span class="progress">
            <TallyBar tally={leaves} /> <b>{whole(all - open)} of {whole(all)}</b> steps done
          </span>
        )}
        {leaves.failed ? <span class="bad">{whole(leaves.failed)} failed</span> : null}
        {run.launches ? <span><b>{many(run.launches, "launch", "launches")}</b></span> : null}
        {run.tokens ? <span><b>{count(run.tokens)}</b> tokens</span> : null}
        {run.cost_usd !== null && <span><b>{dollars(run.cost_usd)}</b></span>}
        {run.holder && <span title={run.holder.host}>process <b class="nums">{run.holder.pid}</b></span>}
        <Origin detail={detail} />
        {Object.entries(run.labels).map(([name, value]) => (
          <span key={name} class="tag"><Foreign text={`${name}=${value}`} /></span>
        ))}
        {store.source.frozenAt !== null && <span>as it was {moment(store.source.frozenAt)}</span>}
      </div>
    </div>
  );
}

function Origin({ detail }: { detail: RunDetail }) {
  const { run } = detail;
  if (!run.forked_from) return null;
  const [from, at] = run.forked_from;
  return (
    <span>
      forked from{" "}
      <a href={hashOf({ page: "run", run: from, view: "tree", step: null })}><Foreign text={from} /></a>
      {at && <> at <Foreign text={at} /></>}
      {" · "}
      <a href={hashOf({ page: "diff", a: from, b: run.run_id })}>compare</a>
    </span>
  );
}
