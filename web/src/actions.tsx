// What a person does to a run.

import { useState } from "preact/hooks";
import type { RunRow, Signal, StepRow } from "./api";
import { Fields } from "./form";
import { Icon } from "./icons";
import { go } from "./navigation";
import { perform } from "./perform";
import { type Choice, ResumeDialog } from "./resume";
import type { RunStore } from "./run_store";
import { draftOf, record, shapeOf, text, valueOf, type Draft, type Shape } from "./schema";
import type { Verb } from "./source";
import { Dialog, Foreign } from "./ui";

// -- dialogs ---------------------------------------------------------------------------------------

interface AskProps {
  readonly title: string;
  readonly note?: string;
  readonly verb: string;
  readonly grave?: boolean;
  readonly shape: Shape;
  readonly preset?: unknown;
  readonly onClose: () => void;
  /** True if it was done: then the dialog closes. */
  readonly onDo: (value: never) => Promise<boolean>;
}

/** A dialog that asks for what an action needs, and does it. */
export function AskDialog({ title, note, verb, grave, shape, preset, onClose, onDo }: AskProps) {
  const [draft, setDraft] = useState<Draft>(() => draftOf(shape, preset));
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    const read = valueOf(shape, draft);
    if (!read.ok) return setWrong(read.at ? `${read.at}: ${read.problem}` : read.problem);
    setBusy(true);
    if (await onDo(read.value as never)) onClose();
    else setBusy(false);
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <h2><Foreign text={title} /></h2>
        {note && <p class="soft"><Foreign text={note} /></p>}
        <Fields shape={shape} draft={draft} onDraft={setDraft} label={title} bare />
        {wrong && <p class="wrong" role="alert">{wrong}</p>}
        <div class="row">
          <button type="button" class="button" onClick={onClose}>Close</button>
          <button type="submit" class={grave ? "button grave" : "button first"} disabled={busy}>{verb}</button>
        </div>
      </form>
    </Dialog>
  );
}

export function SignalDialog({ store, signal, onClose }: { store: RunStore; signal: Signal | null; onClose: () => void }) {
  const payload: Shape = signal?.schema ? shapeOf(signal.schema) : { kind: "json", note: "JSON; empty for none" };
  if (signal) {
    return (
      <AskDialog
        title={`Send ${signal.name}`}
        verb="Send"
        shape={signal.schema ? payload : record({ payload })}
        onClose={onClose}
        onDo={async (given: unknown) => {
          const value = signal.schema ? given : ((given as { payload?: unknown }).payload ?? null);
          return (await perform(store, "signal", { name: signal.name, payload: value }, `The signal ${signal.name} is sent.`)) !== null;
        }}
      />
    );
  }
  return (
    <AskDialog
      title="Send a signal"
      note="It is kept until a step takes it."
      verb="Send"
      shape={record({ name: text(), payload }, ["name"])}
      onClose={onClose}
      onDo={async ({ name, payload: value = null }: { name: string; payload?: unknown }) =>
        (await perform(store, "signal", { name, payload: value }, `The signal ${name} is sent.`)) !== null
      }
    />
  );
}

// -- a run -----------------------------------------------------------------------------------------

type Asked = "guide" | "signal" | "cancel" | "fork" | "diff" | "resume" | null;

const OVER = new Set(["succeeded", "failed", "cancelled"]);
/** Runs that no process drives, and that can be driven again. */
const RESUMABLE = new Set(["suspended", "dead", "failed", "succeeded"]);

export function RunActions({ store, run }: { store: RunStore; run: RunRow }) {
  const [asked, setAsked] = useState<Asked>(null);
  const [menu, setMenu] = useState(false);
  if (store.source.frozenAt !== null) return null;
  const close = () => setAsked(null);
  const over = OVER.has(run.state);
  const driven = run.state === "running" || run.state === "paused";
  const can = (verb: Verb) => store.source.can(verb);
  const choose = (one: Asked) => () => {
    setMenu(false);
    setAsked(one);
  };
  return (
    <div class="acts">
      {can("pause") && driven && run.state !== "paused" && (
        <button type="button" class="button" onClick={() => void perform(store, "pause", {}, "Paused: no new step begins; running steps finish.")}>
          <Icon of="pause" /> Pause
        </button>
      )}
      {can("unpause") && run.state === "paused" && (
        <button type="button" class="button first" onClick={() => void perform(store, "unpause", {}, "The run continues.")}>
          <Icon of="play" /> Unpause
        </button>
      )}
      {can("resume") && (run.state === "suspended" || run.state === "dead" || run.state === "failed") && (
        <button type="button" class="button" onClick={() => void perform(store, "resume", {}, "The run is resumed.")}>
          <Icon of="play" /> Resume
        </button>
      )}
      {can("guide") && !over && (
        <button type="button" class="button" onClick={choose("guide")}>Guide…</button>
      )}
      <div
        class="menu"
        onKeyDown={(event) => {
          if (event.key === "Escape" && menu) {
            event.stopPropagation();
            setMenu(false);
          }
        }}
        onFocusOut={(event) => {
          if (!event.currentTarget.contains(event.relatedTarget as globalThis.Node | null)) setMenu(false);
        }}
      >
        <button type="button" class="button square" aria-label="More actions" aria-expanded={menu} onClick={() => setMenu(!menu)}>
          <Icon of="more" />
        </button>
        {menu && (
          <div>
            {can("signal") && !over && <button type="button" class="button" onClick={choose("signal")}>Send a signal…</button>}
            {can("stop") && driven && (
              <button
                type="button"
                class="button"
                onClick={() => {
                  setMenu(false);
                  void perform(store, "stop", {}, "Stopping: the run is suspended, and can be resumed.");
                }}
              >
                Stop, to resume later
              </button>
            )}
            {can("resume") && RESUMABLE.has(run.state) && <button type="button" class="button" onClick={choose("resume")}>Resume with changes…</button>}
            {can("fork") && <button type="button" class="button" onClick={choose("fork")}>Fork…</button>}
            <button type="button" class="button" onClick={choose("diff")}>Compare with…</button>
            {can("cancel") && !over && <button type="button" class="button grave" onClick={choose("cancel")}>Cancel the run…</button>}
          </div>
        )}
      </div>
      {asked === "guide" && <GuideDialog store={store} path={null} onClose={close} />}
      {asked === "signal" && <SignalDialog store={store} signal={null} onClose={close} />}
      {asked === "fork" && <ForkDialog store={store} at={null} onClose={close} />}
      {asked === "resume" && <ResumeDialog store={store} choice={{}} onClose={close} />}
      {asked === "diff" && <DiffDialog run={run} onClose={close} />}
      {asked === "cancel" && (
        <AskDialog
          title="Cancel the run"
          note="Its steps are stopped, and what can be undone is undone. It cannot be resumed."
          verb="Cancel the run"
          grave
          shape={text("Why (for the record)")}
          onClose={close}
          onDo={async (reason: string) =>
            (await perform(store, "cancel", reason ? { reason } : {}, "The run is being cancelled.")) !== null
          }
        />
      )}
    </div>
  );
}

function DiffDialog({ run, onClose }: { run: RunRow; onClose: () => void }) {
  return (
    <AskDialog
      title="Compare with another run"
      verb="Compare"
      shape={text("The id of the other run")}
      preset={run.forked_from?.[0]}
      onClose={onClose}
      onDo={async (other: string) => {
        if (!other.trim()) return false;
        go({ page: "diff", a: other.trim(), b: run.run_id });
        return true;
      }}
    />
  );
}

export function GuideDialog({ store, path, onClose }: { store: RunStore; path: string | null; onClose: () => void }) {
  return (
    <AskDialog
      title={path === null ? "Guide the agents" : `Guide ${path}`}
      note={
        path === null
          ? "Each running agent is interrupted, and its session continues with your words. If none is running, the next one gets them."
          : "The agent is interrupted, and its session continues with your words."
      }
      verb="Send"
      shape={text()}
      onClose={onClose}
      onDo={async (said: string) => {
        if (!said.trim()) return false;
        const body = path === null ? { text: said } : { text: said, path };
        return (await perform(store, "guide", body, "Your guidance is on its way to the agent.")) !== null;
      }}
    />
  );
}

export function ForkDialog({ store, at, onClose }: { store: RunStore; at: string | null; onClose: () => void }) {
  const json: Shape = { kind: "json", note: "" };
  const before = (store.detail?.inputs ?? {}) as { readonly [name: string]: unknown };
  // What is as it was is not given to the fork; see `valueOf`.
  const inputs = Object.entries(before).map(([name, value]) => [name, typeof value === "string" ? text() : json]);
  const output: Shape = { ...json, note: "Another output of this step, as JSON. Without one it runs again." };
  const shape = at === null ? record(Object.fromEntries(inputs), [], before) : record({ output });
  return (
    <AskDialog
      title={at === null ? "Fork this run" : `Fork at ${at}`}
      note={
        at === null
          ? "A new run, made from what is recorded of this one, which stays as it is. With other inputs the steps that they change run again."
          : "A new run that keeps what had ended when this step began. This run stays as it is."
      }
      verb="Fork"
      shape={shape}
      onClose={onClose}
      onDo={async (given: { [name: string]: unknown }) => {
        const changed = Object.keys(given).length > 0;
        const body =
          at === null
            ? changed ? { inputs: given } : {}
            : "output" in given ? { outputs: { [at]: given["output"] } } : { at };
        const said = await perform(store, "fork", body, "The fork is made. Resume it to let it run.");
        const id = said?.["run_id"];
        if (typeof id !== "string") return false;
        go({ page: "run", run: id, view: "tree", step: null });
        return true;
      }}
    />
  );
}

// -- a step ----------------------------------------------------------------------------------------

export function StepActions({ store, step }: { store: RunStore; step: StepRow }) {
  const [asked, setAsked] = useState<"guide" | "complete" | "fork" | Choice | null>(null);
  const can = (verb: Verb) => store.source.can(verb);
  const run = store.run;
  const over = run !== null && OVER.has(run.state) && run.state !== "failed";
  const live = ["running", "waiting", "open", "interrupted"].includes(step.state);
  const agent = step.step_type === "agent" || step.step_type === "generate";
  const { path } = step;
  const close = () => setAsked(null);
  return (
    <div class="choices">
      {can("guide") && agent && (step.state === "running" || step.state === "waiting") && (
        <button type="button" class="button small" onClick={() => setAsked("guide")}>Guide…</button>
      )}
      {can("complete") && !over && (live || step.state === "failed") && (
        <button type="button" class="button small" onClick={() => setAsked("complete")}>Complete with…</button>
      )}
      {can("retry") && !over && step.state === "running" && (
        <button type="button" class="button small" onClick={() => void perform(store, "retry", { path }, `${path} begins again.`)}>Retry</button>
      )}
      {can("skip") && !over && (live || step.state === "failed") && (
        <button type="button" class="button small" onClick={() => void perform(store, "skip", { path }, `${path} is skipped.`)}>Skip</button>
      )}
      {can("resume") && run !== null && RESUMABLE.has(run.state) && (
        <>
          <button type="button" class="button small" onClick={() => setAsked({ rerun: [path] })}>Run again…</button>
          {(store.tree.tally(path)["failed"] ?? 0) > 0 && (
            <button type="button" class="button small" onClick={() => setAsked({ rerun_failed: path })}>Run failed members again…</button>
          )}
        </>
      )}
      {can("fork") && (
        <button type="button" class="button small" onClick={() => setAsked("fork")}><Icon of="fork" /> Fork from here…</button>
      )}
      {asked !== null && typeof asked === "object" && <ResumeDialog store={store} choice={asked} onClose={close} />}
      {asked === "guide" && <GuideDialog store={store} path={path} onClose={close} />}
      {asked === "fork" && <ForkDialog store={store} at={path} onClose={close} />}
      {asked === "complete" && (
        <AskDialog
          title={`Complete ${path}`}
          note="The step ends as succeeded with this output; an attempt that is at work is stopped first."
          verb="Complete"
          shape={{ kind: "json", note: "Its output, as JSON: text stands in quotes" }}
          onClose={close}
          onDo={async (output: unknown) =>
            (await perform(store, "complete", { path, output }, `${path} is completed.`)) !== null
          }
        />
      )}
    </div>
  );
}
