// One step, whole.

import { useEffect, useState } from "preact/hooks";
import { StepActions } from "./actions";
import { AgentParts, Printed } from "./agent_parts";
import type { RunDetail, StepDetail, StepRow } from "./api";
import { count, dollars, duration, moment, relative } from "./format";
import { GatePart } from "./gates";
import { useClock } from "./hooks";
import { Icon, StatePill } from "./icons";
import { Members, Rounds } from "./member_parts";
import { QueuePart } from "./queue";
import type { RunStore } from "./run_store";
import { outputOf } from "./outputs";
import { hashOf, WHOLE_LOG } from "./router";
import { pretty } from "./text";
import { nameIn } from "./tree";
import { CopyButton, Foreign, TextBlock } from "./ui";
import { waitText } from "./waits";

const RESTED_MS = 60;
const LIVE: ReadonlySet<string> = new Set(["running", "waiting", "open", "interrupted"]);

interface Props {
  readonly store: RunStore;
  readonly detail: RunDetail;
  readonly path: string;
  readonly onClose: () => void;
  readonly onStep: (path: string) => void;
}

/** What is known of a step besides its row; it is loaded when somebody looks at it. */
function useDetail(store: RunStore, path: string): [StepDetail | null, string] {
  const [detail, setDetail] = useState<StepDetail | null>(null);
  const [problem, setProblem] = useState("");
  const state = store.tree.get(path)?.state;
  useEffect(() => {
    let gone = false;
    const load = async () => {
      try {
        const found = await store.source.step(store.id, path);
        if (gone) return;
        store.look(path, found.ends, found.turns_before + found.turns.length, LIVE.has(found.state));
        setDetail(found);
        setProblem("");
      } catch (error) {
        if (!gone) setProblem((error as Error).message);
      }
    };
    // Who goes through the tree with a key held down is asked for nothing until it rests.
    const timer = setTimeout(() => void load(), RESTED_MS);
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [store, path, store.touched, state]);
  useEffect(() => () => store.look(null), [store, path]);
  return [detail?.path === path ? detail : null, problem];
}

export function StepPane({ store, detail: run, path, onClose, onStep }: Props) {
  const [detail, problem] = useDetail(store, path);
  const step: StepRow | undefined = store.tree.get(path);
  const now = useClock(step?.state === "running" ? 1000 : 10_000);
  if (!step) {
    return (
      <aside class="pane" aria-label="Step">
        <header class="pane-head">
          <div class="title">
            <h2 class="grow">No such step</h2>
            <Close onClose={onClose} />
          </div>
        </header>
        <div class="empty"><p>No step <Foreign text={path} /> is recorded.</p></div>
      </aside>
    );
  }
  const queue = run.work.find((one) => one.path === path);
  const gate = run.gates.find((one) => one.path === path);
  const wait = run.run.waits_for.find((one) => one.path === path && one.kind !== "answer");
  const agent = step.step_type === "agent" || step.step_type === "generate";
  return (
    <aside class="pane" aria-label={`Step ${path}`}>
      <header class="pane-head">
        <div class="title">
          <h2 class="grow cut"><Foreign text={nameIn(path, store.tree.nodes.get(path)?.parent ?? null)} /></h2>
          <CopyButton text={path} what="the path" />
          <Close onClose={onClose} />
        </div>
        <div class="facts">
          <StatePill state={step.state} />
          <span>{step.step_type}</span>
          <span class="mono cut"><Foreign text={path} /></span>
          <a href={hashOf({ page: "run", run: store.id, view: "log", step: null, log: { ...WHOLE_LOG, words: path } })}>in the log</a>
        </div>
        <StepActions store={store} step={step} />
      </header>
      <div class="pane-body" tabIndex={0} role="region" aria-label="What is known of the step">
        {problem && <p class="wrong"><Foreign text={problem} /></p>}
        {gate && <GatePart key={`${gate.path} ${gate.since}`} gate={gate} store={store} now={now} />}
        {wait && <p class="note"><Foreign text={waitText(wait, now)} /></p>}
        {queue && <QueuePart queue={queue} store={store} />}
        <Facts step={step} detail={detail} now={now} />
        <Errors step={step} detail={detail} />
        <Members tree={store.tree} path={path} onStep={onStep} />
        {detail && <Rounds detail={detail} />}
        {agent && <Guidance run={run} step={step} now={now} />}
        {detail && agent && <AgentParts store={store} detail={detail} live={LIVE.has(step.state)} />}
        {detail && <Output detail={detail} />}
        {detail && <Printed store={store} detail={detail} live={LIVE.has(step.state)} />}
        {detail && <Tries detail={detail} />}
        {detail && <Incidents detail={detail} />}
      </div>
    </aside>
  );
}

function Close({ onClose }: { onClose: () => void }) {
  return (
    <button type="button" class="button bare square" aria-label="Close the step" onClick={onClose}><Icon of="close" /></button>
  );
}

function Facts({ step, detail, now }: { step: StepRow; detail: StepDetail | null; now: number }) {
  const took = step.duration_ms ?? (step.state === "running" && step.started_at ? (now - step.started_at) * 1000 : null);
  const usage = detail?.usage ?? step.usage;
  const pairs: [string, preact.ComponentChildren][] = [];
  const add = (name: string, value: preact.ComponentChildren) => {
    if (value !== null && value !== undefined && value !== "") pairs.push([name, value]);
  };
  add("Began", step.started_at ? <span title={relative(step.started_at, now)}>{moment(step.started_at)}</span> : "");
  add("Took", duration(took));
  add("Attempts", step.attempts > 1 ? String(step.attempts) : "");
  add("Launches", (step.launches ?? 0) > 1 ? String(step.launches) : "");
  add("Cost", dollars(usage?.cost_usd));
  const tokens = usage?.tokens ?? ((usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0) || null);
  add("Tokens", tokens === null ? "" : `${count(tokens)}${usage?.input_tokens ? ` (${count(usage.input_tokens)} in, ${count(usage.output_tokens)} out)` : ""}`);
  add("Agent", [detail?.backend, detail?.model].filter(Boolean).join(" · "));
  add("Session", detail?.session ? <span class="mono"><Foreign text={detail.session} /></span> : "");
  add("Exit code", detail ? (outputOf(detail).exitCode ?? "") : "");
  add("Given by", step.given_by ? <Foreign text={step.given_by} /> : "");
  if (detail?.answer) {
    add("Answered", <><Foreign text={JSON.stringify(detail.answer.answer)} /> by <Foreign text={detail.answer.by ?? "somebody"} />, {relative(detail.answer.at, now)}</>);
  }
  add("Undone", step.undone ? (step.undone.error ?? "yes") : "");
  return (
    <dl class="pairs nums">
      {pairs.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
    </dl>
  );
}

function Errors({ step, detail }: { step: StepRow; detail: StepDetail | null }) {
  return (
    <>
      {step.error && <TextBlock title={step.error_type ? `Error: ${step.error_type}` : "Error"} text={detail?.error ?? step.error} bad />}
      {detail?.traceback && <Folded title="Traceback" text={detail.traceback} />}
      {step.handled?.map((failure, place) => (
        <TextBlock key={place} title={`It got over: ${failure.error_type ?? "a failure"}`} text={failure.error} />
      ))}
    </>
  );
}

function Folded({ title, text }: { title: string; text: string }) {
  const [open, setOpen] = useState(false);
  if (open) return <TextBlock title={title} text={text} />;
  return (
    <div>
      <button type="button" class="button small" onClick={() => setOpen(true)}>Show the {title.toLowerCase()}</button>
    </div>
  );
}

/** What people said to the agent, or to all that were at work when it was. */
function Guidance({ run, step, now }: { run: RunDetail; step: StepRow; now: number }) {
  const { path, started_at: began, ended_at: ended } = step;
  const said = run.acts.filter((act) => {
    if (act.action !== "guide" || act.path === path) return act.action === "guide";
    const meant = act.path === "" || path.startsWith(`${act.path}/`);
    return meant && began !== null && act.at >= began && (ended === null || act.at <= ended);
  });
  return (
    <>
      {said.map((act, place) => (
        <TextBlock key={place} title={`Guidance by ${act.by ?? "somebody"}`} note={relative(act.at, now)} text={act.value} prose />
      ))}
    </>
  );
}

function Output({ detail }: { detail: StepDetail }) {
  const { value } = outputOf(detail);
  if (value === null || value === undefined || value === "") return null;
  // What an agent answered with text is there as its answer.
  if (typeof value === "string" && value.trim() === detail.text.trim()) return null;
  return <TextBlock title="Output" text={pretty(value)} note={detail.output_cut ? "cut by the server" : undefined} prose={typeof value === "string"} />;
}

function Tries({ detail }: { detail: StepDetail }) {
  if (detail.tries.length === 0) return null;
  const paid = detail.tries.some((one) => one.usage?.cost_usd);
  return (
    <section class="part">
      <div class="line1"><h3>Attempts that failed</h3></div>
      <div class="wide">
        <table class="plain">
          <thead><tr><th>No.</th><th>When</th><th>Why</th>{paid && <th>Cost</th>}</tr></thead>
          <tbody>
            {detail.tries.map((one, place) => (
              <tr key={place}>
                <td class="nums">{one.number}</td>
                <td class="short nums">{moment(one.at)}</td>
                <td><Foreign text={one.error ?? ""} /></td>
                {paid && <td class="nums">{dollars(one.usage?.cost_usd)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Incidents({ detail }: { detail: StepDetail }) {
  if (detail.incidents.length === 0) return null;
  return (
    <section class="part">
      <div class="line1"><h3>Incidents</h3></div>
      <div class="wide">
        <table class="plain">
          <thead><tr><th>When</th><th>Kind</th><th>What</th><th>Then</th></tr></thead>
          <tbody>
            {detail.incidents.map((one, place) => (
              <tr key={place}>
                <td class="short nums">{moment(one.at)}</td>
                <td class="short">{one.kind.replace(/_/g, " ")}</td>
                <td><Foreign text={one.error} /></td>
                <td class="short"><Foreign text={one.next ?? ""} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
