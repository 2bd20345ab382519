// What a run was given, what came of it, and what people did to it meanwhile.

import type { Act, RunDetail } from "./api";
import { moment, relative } from "./format";
import { useClock } from "./hooks";
import { hashOf } from "./router";
import { pretty } from "./text";
import { Foreign, TextBlock } from "./ui";

export function Values({ detail }: { detail: RunDetail }) {
  const inputs = Object.entries((detail.inputs ?? {}) as { readonly [name: string]: unknown });
  return (
    <div class="page" tabIndex={0} role="region" aria-label="Inputs, result, and what people did">
      {inputs.length > 0 ? (
        inputs.map(([name, value]) => <TextBlock key={name} title={`Input: ${name}`} text={pretty(value)} prose={typeof value === "string"} short />)
      ) : (
        <p class="note">It was started without inputs.</p>
      )}
      {detail.value !== null && detail.value !== undefined && <TextBlock title="Result" text={pretty(detail.value)} prose={typeof detail.value === "string"} />}
      {detail.error && <TextBlock title="Error" text={detail.error} bad />}
      {detail.acts.length > 0 && <Acts detail={detail} />}
    </div>
  );
}

const DID: { readonly [action: string]: string } = {
  answer: "answered", signal: "sent the signal", cancel: "cancelled the run", pause: "paused the run", unpause: "unpaused the run",
  stop: "stopped its process", complete: "gave the output of", skip: "passed over", retry: "began again", guide: "guided",
  edit: "changed the queue of",
};

function Acts({ detail }: { detail: RunDetail }) {
  const now = useClock(30_000);
  return (
    <section class="part">
      <div class="line1"><h3>What people did</h3></div>
      <div class="wide" tabIndex={0} role="region" aria-label="What people did">
        <table class="plain">
          <thead><tr><th>When</th><th>Who</th><th>What</th><th>With</th></tr></thead>
          <tbody>
            {detail.acts.map((act, place) => (
              <tr key={place}>
                <td class="short" title={relative(act.at, now)}>{moment(act.at)}</td>
                <td class="short"><Foreign text={act.by ?? ""} /></td>
                <td>{DID[act.action] ?? act.action} <Where act={act} run={detail.run.run_id} /></td>
                <td class="foreign"><Foreign text={act.value} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Where({ act, run }: { act: Act; run: string }) {
  if (!act.path) return null;
  if (act.action === "signal") return <span class="mono"><Foreign text={act.path} /></span>;
  return <a class="mono" href={hashOf({ page: "run", run, view: "tree", step: act.path })}><Foreign text={act.path} /></a>;
}
