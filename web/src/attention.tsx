// What of a run needs a look: why it failed, what it asks, what it waits for.

import { useState } from "preact/hooks";
import type { RunDetail } from "./api";
import { many } from "./format";
import { GateLine, SignalLine } from "./gates";
import { useClock } from "./hooks";
import { hashOf } from "./router";
import type { RunStore } from "./run_store";
import { Foreign } from "./ui";
import { waitText } from "./waits";

const MOST = 4;
const LONG_ERROR = 400;

interface Props {
  readonly store: RunStore;
  readonly detail: RunDetail;
  /** Show a step, and what can be done there. */
  readonly onOpen: (path: string) => void;
}

export function Attention({ store, detail, onOpen }: Props) {
  const now = useClock(10_000);
  const [all, setAll] = useState(false);
  const { run } = detail;
  const others = run.waits_for.filter((wait) => wait.kind === "time" || wait.kind === "claim" || wait.kind === "unpause");
  const gates = all ? detail.gates : detail.gates.slice(0, MOST);
  const left = detail.gates.length - gates.length;
  return (
    <div class="callouts">
      {run.state === "dead" && (
        <div class="callout wait"><p>No process is running it. The record is safe; resume the run to continue.</p></div>
      )}
      {detail.error && <Failed detail={detail} error={detail.error} />}
      {detail.needs.map((need) => <div key={need} class="callout wait"><p><b>A person is needed:</b> <Foreign text={need} /></p></div>)}
      {gates.map((gate) => <GateLine key={`${gate.path} ${gate.since}`} gate={gate} store={store} now={now} onOpen={onOpen} />)}
      {left > 0 && (
        <div class="callout wait">
          <button type="button" class="button small" onClick={() => setAll(true)}>show {many(left, "more question")}</button>
        </div>
      )}
      {detail.signals.map((signal) => <SignalLine key={signal.name} signal={signal} store={store} />)}
      {others.length > 0 && (
        <div class="callout">
          <p class="note"><Foreign text={waitText(others[0]!, now)} />{others.length > 1 ? ` · and ${others.length - 1} more` : ""}</p>
        </div>
      )}
    </div>
  );
}

function Failed({ detail, error }: { detail: RunDetail; error: string }) {
  const step = detail.failed_step;
  return (
    <div class="callout bad">
      <p class="foreign">
        {step && (
          <a href={hashOf({ page: "run", run: detail.run.run_id, view: "tree", step })}><Foreign text={step} /></a>
        )}
        {step ? ": " : ""}
        <Foreign text={error.length > LONG_ERROR ? `${error.slice(0, LONG_ERROR)}…` : error} />
      </p>
    </div>
  );
}
