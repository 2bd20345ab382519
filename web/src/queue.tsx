// The queue of a `work` step: what waits, what is at work, and a hand on it.

import { useState } from "preact/hooks";
import { AskDialog, perform } from "./actions";
import type { Queue } from "./api";
import { many } from "./format";
import type { RunStore } from "./run_store";
import type { Shape } from "./schema";
import { Foreign } from "./ui";

/** So many ids are shown of each sort. */
const MOST = 100;

const NEW_TASK: Shape = {
  kind: "object",
  note: "",
  title: "",
  fields: [
    { name: "id", required: true, shape: { kind: "text", note: "", format: "" }, preset: undefined },
    { name: "payload", required: false, shape: { kind: "json", note: "What it is about, as JSON; empty for nothing" }, preset: undefined },
    { name: "priority", required: false, shape: priority("The lower, the sooner it begins; 0 if it is empty"), preset: undefined },
  ],
};

function priority(note: string): Shape {
  return { kind: "number", note, integer: false, min: null, max: null };
}

/** How a queue stands, in a line. */
export function standing(queue: Queue): string {
  const counts: [number, string][] = [
    [queue.queued.length, "queued"], [queue.running.length, "at work"], [queue.done, "done"],
    [queue.failed, "failed"], [queue.refused.length, "refused"],
  ];
  const said = counts.filter(([number]) => number > 0).map(([number, word]) => `${number} ${word}`);
  return said.join(" · ") || "empty";
}

export function QueuePart({ queue, store }: { queue: Queue; store: RunStore }) {
  const [asked, setAsked] = useState<"add" | { readonly urgent: string; readonly now: number } | null>(null);
  const close = () => setAsked(null);
  const { path } = queue;
  const edit = async (change: object, done: string) => (await perform(store, "work", { path, ...change }, done)) !== null;
  const may = store.source.can("work") && !queue.over;
  return (
    <section class="part" aria-label={`Queue of ${path}`}>
      <div class="line1">
        <h3>Queue</h3>
        <span class="note nums">{standing(queue)}</span>
        {may && <button type="button" class="button small" onClick={() => setAsked("add")}>Add a task…</button>}
      </div>
      {queue.why_stopped && <p><b>Stopped:</b> <Foreign text={queue.why_stopped} /></p>}
      <Ids title="At work" ids={queue.running} />
      {queue.queued.length > 0 && (
        <div class="wide">
          <table class="plain">
            <thead><tr><th>Queued</th><th>Priority</th>{may && <th><span class="unseen">Change</span></th>}</tr></thead>
            <tbody>
              {queue.queued.slice(0, MOST).map((one) => (
                <tr key={one.id}>
                  <td class="mono"><Foreign text={one.id} /></td>
                  <td class="nums">{one.priority}</td>
                  {may && (
                    <td class="short">
                      <button type="button" class="button small" aria-label={`Priority of ${one.id}`} onClick={() => setAsked({ urgent: one.id, now: one.priority })}>Priority…</button>{" "}
                      <button type="button" class="button small" aria-label={`Drop ${one.id}`} onClick={() => void edit({ drop: [one.id] }, `${one.id} is dropped.`)}>Drop</button>
                    </td>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
          <More left={queue.queued.length - MOST} />
        </div>
      )}
      <Ids title="Refused" ids={queue.refused} />
      {asked === "add" && (
        <AskDialog
          title={`Add a task to ${path}`}
          verb="Add"
          shape={NEW_TASK}
          onClose={close}
          onDo={(task: { id: string }) => edit({ add: [task] }, `${task.id} is added.`)}
        />
      )}
      {asked !== null && asked !== "add" && (
        <AskDialog
          title={`Priority of ${asked.urgent}`}
          verb="Change"
          shape={priority("The lower, the sooner it begins")}
          preset={asked.now}
          onClose={close}
          onDo={(number: number) => edit({ priority: { [asked.urgent]: number } }, `The priority of ${asked.urgent} is ${number}.`)}
        />
      )}
    </section>
  );
}

function Ids({ title, ids }: { title: string; ids: readonly string[] }) {
  if (ids.length === 0) return null;
  return (
    <div>
      <h4 class="note">{title}</h4>
      <p class="mono"><Foreign text={ids.slice(0, MOST).join(", ")} /></p>
      <More left={ids.length - MOST} />
    </div>
  );
}

function More({ left }: { left: number }) {
  return left > 0 ? <p class="note">and {many(left, "more task")}</p> : null;
}
