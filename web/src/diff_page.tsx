// Two runs, compared step by step.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { RunDiff, StepDiff, StepSide } from "./api";
import { duration, many, whole } from "./format";
import { Icon, StateIcon, wordOf } from "./icons";
import { hashOf, type Place } from "./router";
import type { Source } from "./source";
import { pretty, visible } from "./text";
import { diffOf, nearChanges } from "./text_diff";
import { Foreign, Loading } from "./ui";

const MOST = 300;
/** Of the lines of one comparison so many are shown. */
const MOST_LINES = 600;

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
    setProblem("");
    source.diff(place.a, place.b).then(setDiff, (error: Error) => setProblem(error.message));
  }, [source, place.a, place.b]);
  if (problem) return <main><div class="empty"><h1>They cannot be compared</h1><p><Foreign text={problem} /></p></div></main>;
  if (!diff) return <main><Loading /></main>;
  const differ = diff.steps.filter((one) => one.state !== "same");
  const asked = all ? diff.steps : differ;
  const shown = asked.slice(0, MOST);
  const link = (run: string) => (
    <a class="mono" href={hashOf({ page: "run", run, view: "tree", step: null })}><Foreign text={run} /></a>
  );
  return (
    <main>
      <div class="page">
        <h1 class="versus">{link(place.a)} <span class="soft">and</span> {link(place.b)}</h1>
        <div class="facts">
          <span><b>{whole(differ.length)}</b> of {many(diff.steps.length, "step")} differ</span>
          {diff.fields.length > 0 && <span>the runs differ in <b>{diff.fields.join(", ")}</b></span>}
          <label><input type="checkbox" checked={all} onChange={() => setAll(!all)} /> show those that are the same</label>
        </div>
        {shown.length === 0 && <p>All steps are the same.</p>}
        <div class="diffs">{shown.map((one) => <Step key={one.path} diff={one} />)}</div>
        {asked.length > MOST && <p class="soft">and {many(asked.length - MOST, "step")} more: see <code>handrail diff</code></p>}
      </div>
    </main>
  );
}

function Step({ diff }: { diff: StepDiff }) {
  const [open, setOpen] = useState(diff.state === "changed");
  return (
    <section aria-label={diff.path}>
      <h2>
        <button type="button" class="diff-head" aria-expanded={open} onClick={() => setOpen(!open)}>
          <span class={open ? "twist open" : "twist"}><Icon of="chevron" /></span>
          <span class="mono cut"><Foreign text={diff.path} /></span>
          <span class={diff.state === "same" ? "tag" : "tag s-waiting"}>
            {WORDS[diff.state]}{diff.fields.length > 0 ? `: ${diff.fields.join(", ")}` : ""}
          </span>
          <span class="grow" />
          <Side side={diff.a} />
          {diff.a && diff.b && <span class="soft" aria-hidden="true">→</span>}
          <Side side={diff.b} />
        </button>
      </h2>
      {open && <Lines diff={diff} />}
    </section>
  );
}

function Side({ side }: { side: StepSide | null }) {
  if (!side) return null;
  return (
    <span class="side nums">
      <StateIcon state={side.status} />
      <span class="unseen">{wordOf(side.status)}, </span>
      {side.attempts > 1 ? `${side.attempts} attempts, ` : ""}
      {duration(side.duration_ms)}
    </span>
  );
}

function textOf(side: StepSide | null): string {
  if (!side) return "";
  const output = side.output === null || side.output === undefined ? "" : pretty(side.output);
  return [side.error ? `error: ${side.error}` : "", output].filter(Boolean).join("\n");
}

function Lines({ diff }: { diff: StepDiff }) {
  const lines = useMemo(() => {
    const [a, b] = [textOf(diff.a), textOf(diff.b)];
    if (diff.a && diff.b) return a === b ? [] : nearChanges(diffOf(a, b));
    return diffOf(diff.a ? a : b, diff.a ? a : b);
  }, [diff]);
  if (lines.length === 0 || (lines.length === 1 && lines[0]?.text === "")) return <p class="note diff-none">It gave the same, and nothing is to be seen of it.</p>;
  return (
    <pre class="block diff-lines" tabIndex={0} role="region" aria-label={`What ${diff.path} gave`}>
      {lines.slice(0, MOST_LINES).map((line, place) =>
        line === null ? (
          <span key={place} class="soft">{"  ⋯\n"}</span>
        ) : line.change === "-" ? (
          <del key={place}>{`- ${visible(line.text)}\n`}</del>
        ) : line.change === "+" ? (
          <ins key={place}>{`+ ${visible(line.text)}\n`}</ins>
        ) : (
          <span key={place}>{`  ${visible(line.text)}\n`}</span>
        ),
      )}
      {lines.length > MOST_LINES && <span class="soft">{`  and ${many(lines.length - MOST_LINES, "line")} more`}</span>}
    </pre>
  );
}
