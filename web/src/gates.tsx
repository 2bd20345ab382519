// What a run asks of people: questions, each with a form for its answer, and signals.

import { useState } from "preact/hooks";
import { SignalDialog } from "./actions";
import type { Gate, Signal } from "./api";
import { moment, relative } from "./format";
import { Fields } from "./form";
import { perform } from "./perform";
import type { RunStore } from "./run_store";
import { draftOf, shapeOf, valueOf, type Draft, type Shape } from "./schema";
import { Foreign } from "./ui";

const IN_A_LINE: ReadonlySet<Shape["kind"]> = new Set(["choice", "boolean", "number", "text"]);

function shapeOfGate(gate: Gate): Shape {
  if (gate.choices.length > 0) return { kind: "choice", note: "", options: gate.choices };
  if (gate.schema) return shapeOf(gate.schema);
  return { kind: "text", note: "", format: "" };
}

interface GateProps {
  readonly gate: Gate;
  readonly store: RunStore;
}

/** The form for the answer to a question. */
export function GateForm({ gate, store }: GateProps) {
  const [shape] = useState(() => shapeOfGate(gate));
  const [draft, setDraft] = useState<Draft>(() => draftOf(shape, gate.has_default ? gate.default : undefined));
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const [text, setText] = useState("");
  if (!store.source.can("answer")) return null;
  const chosen = valueOf(shape, draft);
  const label = chosen.ok && typeof chosen.value === "string" ? chosen.value : "";
  const prompt = Object.hasOwn(gate.prompts, label) ? gate.prompts[label] : undefined;
  const answer = async (event: Event) => {
    event.preventDefault();
    const read = valueOf(shape, draft);
    if (!read.ok) return setWrong(read.at ? `${read.at}: ${read.problem}` : read.problem);
    if (prompt !== undefined && !text.trim()) return setWrong(`${prompt}: is missing`);
    setWrong("");
    setBusy(true);
    const given = prompt === undefined ? read.value : { [label]: text };
    await perform(store, "answer", { path: gate.path, answer: given }, `Your answer to ${gate.path} counts.`);
    setBusy(false);
  };
  return (
    <form class={IN_A_LINE.has(shape.kind) ? "inline" : undefined} onSubmit={(event) => void answer(event)}>
      <Fields shape={shape} draft={draft} onDraft={setDraft} label="Answer" bare />
      {prompt !== undefined && (
        <Fields shape={{ kind: "text", note: "", format: "" }} draft={text} onDraft={(typed) => setText(String(typed ?? ""))} label={prompt} />
      )}
      {wrong && <p class="wrong" role="alert"><Foreign text={wrong} /></p>}
      <div class="row">
        <button type="submit" class="button first" disabled={busy}>Answer</button>
      </div>
    </form>
  );
}

function Asked({ gate, now }: { gate: Gate; now: number }) {
  return (
    <span class="note" title={moment(gate.since)}>
      <span class="mono"><Foreign text={gate.path} /></span> · asked {relative(gate.since, now)}
      {gate.deadline ? ` · ${gate.deadline > now ? "until" : "was open until"} ${relative(gate.deadline, now)}` : ""}
    </span>
  );
}

/** A question among those of its run: answered at once if that takes a line, else where its step is. */
export function GateLine({ gate, store, now, onOpen }: GateProps & { now: number; onOpen: (path: string) => void }) {
  const [small] = useState(() => IN_A_LINE.has(shapeOfGate(gate).kind));
  return (
    <section class="callout wait" data-gate={gate.path} aria-label={`Question of ${gate.path}`}>
      <div class="asks">
        <h2 class="foreign"><Foreign text={gate.question} /></h2>
        <Asked gate={gate} now={now} />
      </div>
      {small ? (
        <GateForm gate={gate} store={store} />
      ) : (
        store.source.can("answer") && (
          <button type="button" class="button first" onClick={() => onOpen(gate.path)}>Answer…</button>
        )
      )}
    </section>
  );
}

/** A question whole, beside its step. */
export function GatePart({ gate, store, now }: GateProps & { now: number }) {
  return (
    <section class="part callout wait" aria-label={`Answer ${gate.path}`}>
      <div class="asks">
        <h3 class="foreign"><Foreign text={gate.question} /></h3>
        <Asked gate={gate} now={now} />
      </div>
      <GateForm gate={gate} store={store} />
    </section>
  );
}

export function SignalLine({ signal, store }: { signal: Signal; store: RunStore }) {
  const [open, setOpen] = useState(false);
  return (
    <section class="callout wait" aria-label={`Signal ${signal.name}`}>
      <div class="asks">
        <span>Waits for the signal <b class="mono"><Foreign text={signal.name} /></b></span>
        {signal.path && <span class="note mono"><Foreign text={signal.path} /></span>}
      </div>
      {store.source.can("signal") && (
        <button type="button" class="button" onClick={() => setOpen(true)}>Send signal…</button>
      )}
      {open && <SignalDialog store={store} signal={signal} onClose={() => setOpen(false)} />}
    </section>
  );
}
