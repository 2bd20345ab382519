// Two runs side by side.

import { useEffect, useState } from "preact/hooks";
import type { RunDiff, StepDiff, StepSide } from "./api";
import { duration, many } from "./format";
import { StatePill } from "./icons";
import { hashOf, type Place } from "./router";
import type { Source } from "./source";
import { pretty } from "./text";
import { Foreign, TextBlock } from "./ui";

const MOST = 300;

const WORDS: { readonly [state in StepDiff["state"]]: string } = {
  same: "same",
  changed: "changed",
  only_a: "only in the first",
  only_b: "only in the second",
};

export function DiffPage({ source, place }: { source: Source; place: Extract<Place, { page: "diff" }> }) {
  const [diff, setDiff] = useState<RunDiff | null>(null);
  const [problem, setProblem] = useState("");
  const [all, setAll] = useState(false);
  useEffect(() => {
    document.title = "Compare · handrail";
    setDiff(null);
    source.diff(place.a, place.b).then(setDiff, (error: Error) => setProblem(error.message));
  }, [source, place.a, place.b]);
  if (problem) return <main><div class="empty"><h1>They cannot be compared</h1><p><Foreign text={problem} /></p></div></main>;
  if (!diff) return <main><div class="empty" aria-busy="true"><p>Loading…</p></div></main>;
  const differ = diff.steps.filter((one) => one.state !== "same");
  const asked = all ? diff.steps : differ;
  const shown = asked.slice(0, MOST);
  const link = (run: string) => (
    <a class="mono" href={hashOf({ page: "run", run, view: "tree", step: null })}><Foreign text={run} /></a>
  );
  return (
    <main>
      <div class="page">
        <h1>{link(place.a)} <span class="soft">and</span> {link(place.b)}</h1>
        <div class="facts">
          <span><b>{differ.length}</b> of {diff.steps.length} steps differ</span>
          {diff.fields.length > 0 && <span>the runs differ in <b>{diff.fields.join(", ")}</b></span>}
          <label><input type="checkbox" checked={all} onChange={() => setAll(!all)} /> show those that are the same</label>
        </div>
        {shown.length === 0 && <p>All steps are the same.</p>}
        {shown.map((one) => <Step key={one.path} diff={one} />)}
        {asked.length > MOST && <p class="soft">and {many(asked.length - MOST, "step")} more: see <code>handrail diff</code></p>}
      </div>
    </main>
  );
}

function Step({ diff }: { diff: StepDiff }) {
  const [open, setOpen] = useState(diff.state === "changed");
  return (
    <section class="callout" aria-label={diff.path}>
      <div class="line1">
        <h2 class="mono grow"><Foreign text={diff.path} /></h2>
        <span class={diff.state === "same" ? "tag" : "tag s-waiting"}>
          {WORDS[diff.state]}{diff.fields.length > 0 ? `: ${diff.fields.join(", ")}` : ""}
        </span>
        <button type="button" class="button small" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? "hide" : "show"}</button>
      </div>
      {open && (
        <div class="sides">
          <Side name="First" side={diff.a} />
          <Side name="Second" side={diff.b} />
        </div>
      )}
    </section>
  );
}

function Side({ name, side }: { name: string; side: StepSide | null }) {
  if (!side) return <div class="part"><p class="note">{name}: not there</p></div>;
  return (
    <div class="part">
      <div class="facts">
        <StatePill state={side.status} />
        <span>{duration(side.duration_ms)}</span>
        {side.attempts > 1 && <span>{side.attempts} attempts</span>}
      </div>
      {side.error && <TextBlock title={`${name}: error`} text={side.error} bad />}
      {side.output !== null && side.output !== undefined && <TextBlock title={`${name}: output`} text={pretty(side.output)} />}
    </div>
  );
}
