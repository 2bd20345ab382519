// The form for resuming a run: what runs again, what keeps its record, and the plan of that.

import { useState } from "preact/hooks";
import type { Plan, PlannedStep } from "./api";
import { many } from "./format";
import { Fields } from "./form";
import { perform, refusal } from "./perform";
import type { RunStore } from "./run_store";
import { draftOf, record, text, valueOf, type Draft, type Shape } from "./schema";
import { Dialog, Foreign } from "./ui";
import { waitText } from "./waits";

/** What a resume runs again or keeps, as the server takes it. */
export interface Choice {
  readonly rerun?: readonly string[];
  readonly reuse?: readonly string[];
  readonly rerun_failed?: string | boolean;
}

const AGAIN = "Run again";
const FAILED = "Failed members again";
const KEEP = "Keep as recorded";
const list = (note: string): Shape => ({ kind: "list", note, item: text() });
const SHAPE = record(
  {
    [AGAIN]: list("A step's path, or a pattern such as items/*. What followed from it runs again, too."),
    [FAILED]: { kind: "optional", note: "", inner: text("The path of a group; empty: those of all groups") },
    [KEEP]: list("A step whose code has changed, and whose recorded output still counts"),
  },
  [AGAIN, FAILED, KEEP],
);
const MOST_ROWS = 200;

function draftFor(choice: Choice): Draft {
  const failed = choice.rerun_failed;
  return draftOf(SHAPE, { [AGAIN]: choice.rerun ?? [], [KEEP]: choice.reuse ?? [], [FAILED]: failed === true ? "" : failed || null });
}

function choiceOf(draft: Draft): Choice {
  const read = valueOf(SHAPE, draft);
  const given = (read.ok ? read.value : {}) as { readonly [name: string]: unknown };
  const paths = (name: string) => ((given[name] ?? []) as string[]).map((path) => path.trim()).filter(Boolean);
  const failed = given[FAILED] as string | null | undefined;
  return { rerun: paths(AGAIN), reuse: paths(KEEP), rerun_failed: typeof failed === "string" ? failed.trim() || true : false };
}

/** `choice`: what the form begins with. */
export function ResumeDialog({ store, choice, onClose }: { store: RunStore; choice: Choice; onClose: () => void }) {
  const [draft, setDraft] = useState<Draft>(() => draftFor(choice));
  const [plan, setPlan] = useState<Plan | null>(null);
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const change = (to: Draft) => {
    setDraft(to);
    setPlan(null); // it was the plan of another choice
  };
  const look = async (chosen: Choice) => {
    setBusy(true);
    try {
      setPlan((await store.source.act(store.id, "plan", chosen))["plan"] as Plan);
      setWrong("");
    } catch (error) {
      setPlan(null);
      setWrong(refusal(error));
    }
    setBusy(false);
  };
  const add = (to: "rerun" | "reuse", path: string) => {
    const now = choiceOf(draft);
    const next = { ...now, [to]: [...(now[to] ?? []), path] };
    setDraft(draftFor(next));
    void look(next);
  };
  const submit = async (event: Event) => {
    event.preventDefault();
    if (plan === null) return look(choiceOf(draft));
    setBusy(true);
    if ((await perform(store, "resume", choiceOf(draft), "The run is resumed.")) !== null) onClose();
    else setBusy(false);
  };
  const open = plan?.steps.some((step) => step.state === "changed") ?? false;
  return (
    <Dialog title="Resume the run" onClose={onClose}>
      <form class="resume" onSubmit={(event) => void submit(event)}>
        <h2>Resume the run</h2>
        <Fields shape={SHAPE} draft={draft} onDraft={change} label="Resume the run" bare />
        {wrong && <p class="wrong" role="alert"><Foreign text={wrong} /></p>}
        {plan && <PlanPart plan={plan} onChoose={add} />}
        <div class="row">
          <button type="button" class="button" onClick={onClose}>Close</button>
          <button type="submit" class="button first" disabled={busy || open}>{plan === null ? "Show the plan" : "Resume"}</button>
        </div>
      </form>
    </Dialog>
  );
}

function PlanPart({ plan, onChoose }: { plan: Plan; onChoose: (to: "rerun" | "reuse", path: string) => void }) {
  const kept = plan.steps.filter((step) => step.state === "recorded").length;
  const others = plan.steps.filter((step) => step.state !== "recorded");
  return (
    <section class="part" aria-label="The plan">
      <h3>What it will do</h3>
      {kept > 0 && <p class="note">{many(kept, "step")} {kept === 1 ? "keeps its" : "keep their"} recorded end.</p>}
      {others.length > 0 && (
        <ul class="plan-rows" tabIndex={0} aria-label="Steps that do not keep their recorded end">
          {others.slice(0, MOST_ROWS).map((step) => (
            <li key={step.path}>
              <span>{step.interrupted ? "interrupted" : step.state}</span>
              <div>
                <span class="mono"><Foreign text={step.path} /></span> <span class="soft">{remark(step)}</span>
                {step.state === "changed" && <Changed step={step} onChoose={onChoose} />}
              </div>
            </li>
          ))}
        </ul>
      )}
      {others.length > MOST_ROWS && <p class="note">and {others.length - MOST_ROWS} more</p>}
      {after(plan).map((line) => <p key={line} class="note"><Foreign text={line} /></p>)}
    </section>
  );
}

/** A step that the code now describes differently: a person chooses what counts. */
function Changed({ step, onChoose }: { step: PlannedStep; onChoose: (to: "rerun" | "reuse", path: string) => void }) {
  return (
    <>
      <div class="note">was <Foreign text={step.was} /></div>
      <div class="note">now <Foreign text={step.now} /></div>
      <div class="choices">
        <button type="button" class="button small" onClick={() => onChoose("reuse", step.path)}>Keep its record</button>
        <button type="button" class="button small" onClick={() => onChoose("rerun", step.path)}>Run it again</button>
      </div>
    </>
  );
}

function remark(step: PlannedStep): string {
  if (step.interrupted) return step.status === "failed" ? "must not run twice, so it fails" : "runs again";
  if (!step.reached) return `${step.status}; compared with the code when the run reaches it`;
  if (step.state === "orphaned") return "the code no longer reaches it";
  return step.state === "will run" && step.status !== null ? `ends as ${step.status} without running` : "";
}

function after(plan: Plan): string[] {
  const now = Date.now() / 1000;
  return [
    plan.undoes.length > 0 ? `Rolls back ${plan.undoes.join(", ")}.` : "",
    plan.unwinds === null ? "" : `It is being cancelled: ${plan.unwinds}.`,
    ...plan.waits_for.map((wait) => waitText(wait, now)),
    plan.stuck === null ? "" : `Step ${plan.stuck} failed the run, and only runs again if it is named above.`,
    plan.ends === null ? "" : `No step is left to run: it ends as ${plan.ends}.`,
  ].filter(Boolean);
}
