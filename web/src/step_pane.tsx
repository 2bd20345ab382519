// One step, whole.

import { useEffect, useState } from "preact/hooks";
import type { StepDetail, StepRow } from "./api";
import { StepActions } from "./actions";
import { count, dollars, duration, moment, relative } from "./format";
import { useClock } from "./hooks";
import { Icon, StatePill } from "./icons";
import { lastPart } from "./step_line";
import type { RunStore } from "./run_store";
import { pretty } from "./text";
import { CopyButton, Foreign, TextBlock } from "./ui";

const RESTED_MS = 60;

interface Props {
  readonly store: RunStore;
  readonly path: string;
  readonly onClose: () => void;
}

export function StepPane({ store, path, onClose }: Props) {
  const [detail, setDetail] = useState<StepDetail | null>(null);
  const [problem, setProblem] = useState("");
  const step: StepRow | undefined = store.tree.get(path);
  const now = useClock(step?.state === "running" ? 1000 : 10_000);
  const state = step?.state;

  useEffect(() => {
    let gone = false;
    const load = async () => {
      try {
        const found = await store.source.step(store.id, path);
        if (gone) return;
        store.look(path, found.ends, found.turns.length);
        setDetail(found);
        setProblem("");
      } catch (error) {
        if (!gone) setProblem((error as Error).message);
      }
    };
    // Who goes through the tree with a key held down is asked for nothing until it rests.
    const timer = setTimeout(() => void load(), detail?.path === path ? 0 : RESTED_MS);
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [store, path, store.touched, state]);
  useEffect(() => () => store.look(null), [store, path]);

  const shown = detail?.path === path ? detail : null;
  if (!step) {
    return (
      <aside class="pane" aria-label="Step">
        <div class="empty"><p>No step <Foreign text={path} /> is recorded.</p></div>
      </aside>
    );
  }
  return (
    <aside class="pane" aria-label={`Step ${path}`}>
      <header class="pane-head">
        <div class="title">
          <h2 class="grow cut"><Foreign text={lastPart(path)} /></h2>
          <CopyButton text={path} what="the path" />
          <button type="button" class="button bare square" aria-label="Close the step" onClick={onClose}><Icon of="close" /></button>
        </div>
        <div class="facts">
          <StatePill state={step.state} />
          <span class="tag">{step.step_type}</span>
          <span class="mono cut"><Foreign text={path} /></span>
        </div>
        <StepActions store={store} step={step} />
      </header>
      <div class="pane-body" tabIndex={0} role="region" aria-label="What is known of the step">
        {problem && <p class="wrong"><Foreign text={problem} /></p>}
        <Facts step={step} detail={shown} now={now} />
        <Errors step={step} detail={shown} />
        <Agent store={store} detail={shown} live={step.state === "running"} />
        {shown && <Output detail={shown} />}
        {shown && <Tries detail={shown} now={now} />}
      </div>
    </aside>
  );
}

function Facts({ step, detail, now }: { step: StepRow; detail: StepDetail | null; now: number }) {
  const took = step.duration_ms ?? (step.state === "running" && step.started_at ? (now - step.started_at) * 1000 : null);
  const usage = detail?.usage ?? step.usage;
  const pairs: [string, preact.ComponentChildren][] = [];
  const add = (name: string, value: preact.ComponentChildren) => {
    if (value !== null && value !== undefined && value !== "") pairs.push([name, value]);
  };
  add("Began", step.started_at ? `${moment(step.started_at)} (${relative(step.started_at, now)})` : "");
  add("Took", duration(took));
  add("Attempts", step.attempts > 1 ? String(step.attempts) : "");
  add("Cost", dollars(usage?.cost_usd));
  const tokens = usage?.tokens ?? ((usage?.input_tokens ?? 0) + (usage?.output_tokens ?? 0) || null);
  add("Tokens", tokens === null ? "" : `${count(tokens)}${usage?.input_tokens ? ` (${count(usage.input_tokens)} in, ${count(usage.output_tokens)} out)` : ""}`);
  add("Agent", [detail?.backend, detail?.model].filter(Boolean).join(" · "));
  add("Session", detail?.session ? <span class="mono"><Foreign text={detail.session} /></span> : "");
  add("Given by", step.given_by ? <Foreign text={step.given_by} /> : "");
  if (detail?.answer) {
    add("Answered", <><Foreign text={JSON.stringify(detail.answer.answer)} /> by <Foreign text={detail.answer.by ?? "somebody"} />, {relative(detail.answer.at, now)}</>);
  }
  add("Undone", step.undone ? (step.undone.error ?? "yes") : "");
  return (
    <dl class="pairs nums">
      {pairs.map(([name, value]) => [<dt key={name}>{name}</dt>, <dd key={`${name}:`}>{value}</dd>])}
    </dl>
  );
}

function Errors({ step, detail }: { step: StepRow; detail: StepDetail | null }) {
  return (
    <>
      {step.error && <TextBlock title={step.error_type ? `Error: ${step.error_type}` : "Error"} text={step.error} bad />}
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

function Agent({ store, detail, live }: { store: RunStore; detail: StepDetail | null; live: boolean }) {
  if (!detail) return null;
  const more = (kind: "message" | "reasoning" | "stdout" | "stderr") => (live ? (store.streams.get(kind)?.text ?? "") : "");
  const turns = detail.turns;
  const blocks: [string, string, boolean][] = [
    ["Answer", detail.text + more("message"), true],
    ["Thoughts", detail.reasoning + more("reasoning"), true],
    ["Printed", detail.stdout + more("stdout"), false],
    ["Printed on stderr", detail.stderr + more("stderr"), false],
  ];
  return (
    <>
      {turns.map((turn, place) => {
        const number = turns.length > 1 ? ` ${place + 1}` : "";
        return [
          <TextBlock key={`p${place}`} title={`Prompt${number}`} text={turn.prompt} prose />,
          place < turns.length - 1 && turn.answer ? (
            <TextBlock key={`a${place}`} title={`Answer${number}`} text={turn.answer} prose />
          ) : null,
        ];
      })}
      {blocks.map(([title, text, prose]) =>
        text ? <TextBlock key={title} title={title} text={text} prose={prose} follow={live} note={live ? "live" : undefined} /> : null,
      )}
    </>
  );
}

function Output({ detail }: { detail: StepDetail }) {
  const text = detail.output === null || detail.output === undefined ? "" : pretty(detail.output);
  return (
    <>
      {text && <TextBlock title="Output" text={text} note={detail.output_cut ? "cut by the server" : undefined} />}
    </>
  );
}

function Tries({ detail, now }: { detail: StepDetail; now: number }) {
  const paid = detail.tries.some((one) => one.usage?.cost_usd);
  return (
    <>
      {detail.tries.length > 0 && (
        <section class="part">
          <div class="line1"><h3>Attempts that failed</h3></div>
          <div class="wide">
            <table class="plain">
              <thead><tr><th>No.</th><th>When</th><th>Why</th>{paid && <th>Cost</th>}</tr></thead>
              <tbody>
                {detail.tries.map((one) => (
                  <tr key={one.number}>
                    <td class="nums">{one.number}</td>
                    <td class="short">{one.at ? relative(one.at, now) : ""}</td>
                    <td><Foreign text={one.error ?? ""} /></td>
                    {paid && <td class="nums">{dollars(one.usage?.cost_usd)}</td>}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
      )}
      {detail.incidents.length > 0 && (
        <section class="part">
          <div class="line1"><h3>Incidents</h3></div>
          <div class="wide">
            <table class="plain">
              <thead><tr><th>Kind</th><th>When</th><th>What</th><th>Then</th></tr></thead>
              <tbody>
                {detail.incidents.map((one, place) => (
                  <tr key={place}>
                    <td>{one.kind}</td>
                    <td class="short">{one.at ? relative(one.at, now) : ""}</td>
                    <td><Foreign text={one.error} /></td>
                    <td><Foreign text={one.next ?? ""} /></td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
      )}
    </>
  );
}
