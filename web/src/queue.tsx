// The queue of a `work` step: what waits, what is at work, and a hand on it.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { AskDialog } from "./actions";
import type { Queue, QueueEdit, RunState } from "./api";
import { many } from "./format";
import { perform } from "./perform";
import type { RunStore } from "./run_store";
import type { Shape } from "./schema";
import { Foreign } from "./ui";

/** The server names so many ids of each sort. */
const MOST = 100;

const ENDED: ReadonlySet<string> = new Set(["succeeded", "failed", "cancelled"]);

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
    [queue.queued_count, waitingWord(queue)], [queue.running_count, "at work"], [queue.done, "done"],
    [queue.failed, "failed"], [queue.refused_count, "refused"],
  ];
  const said = counts.filter(([number]) => number > 0).map(([number, word]) => `${number} ${word}`);
  return said.join(" · ") || "empty";
}

/** What tasks are that have not begun. */
function waitingWord(queue: Queue): "left" | "queued" {
  return queue.over ? "left" : "queued";
}

/** True if a task that somebody adds to the queue may still begin. */
export function takesEdits(queue: Queue, state: RunState | undefined): boolean {
  return !queue.over && queue.why_stopped === null && !ENDED.has(state ?? "");
}

export function QueuePart({ queue, store }: { queue: Queue; store: RunStore }) {
  const [asked, setAsked] = useState<"add" | { readonly urgent: string; readonly now: number } | null>(null);
  const close = () => setAsked(null);
  const { path } = queue;
  const edit = async (change: object, done: string) => (await perform(store, "work", { path, ...change }, done)) !== null;
  const may = store.source.can("work") && takesEdits(queue, store.run?.state);
  const waiting = waitingWord(queue) === "left" ? "Left" : "Queued";
  return (
    <section class="part" aria-label={`Queue of ${path}`}>
      <div class="line1">
        <h3>Queue</h3>
        <span class="note nums">{standing(queue)}</span>
        {may && <button type="button" class="button small" onClick={() => setAsked("add")}>Add a task…</button>}
      </div>
      {queue.why_stopped && <p><b>Stopped:</b> <Foreign text={queue.why_stopped} /></p>}
      <Unread edits={queue.unread} />
      <Ids title="At work" ids={queue.running}><More left={queue.running_count - queue.running.length} /></Ids>
      {queue.queued.length > 0 && (
        <div class="wide" tabIndex={0} role="region" aria-label={`${waiting} tasks`}>
          <table class="plain">
            <thead><tr><th>{waiting}</th><th>Priority</th>{may && <th><span class="unseen">Change</span></th>}</tr></thead>
            <tbody>
              {queue.queued.map((one) => (
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
          <More left={queue.queued_count - queue.queued.length} />
        </div>
      )}
      <Ids title="Refused" ids={queue.refused}>
        {queue.refused.length >= MOST && <p class="note">These are the first {MOST}.</p>}
      </Ids>
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

function Unread({ edits }: { edits: readonly QueueEdit[] }) {
  if (edits.length === 0) return null;
  return (
    <div role="group" aria-label="Changes that the run has not read">
      <h4 class="note">Not read yet by the run</h4>
      <ul class="files">{edits.map((edit, place) => <li key={place}><Foreign text={editText(edit)} /></li>)}</ul>
    </div>
  );
}

/** What an edit does to a queue, in a line. */
function editText({ add, drop, priority, by }: QueueEdit): string {
  const changes = [
    ...add.map((one) => `add ${one.id}${one.priority ? ` with the priority ${one.priority}` : ""}`),
    ...drop.map((id) => `drop ${id}`),
    ...Object.entries(priority).map(([id, number]) => `give ${id} the priority ${number}`),
  ];
  return `${changes.join(", ")}, by ${by ?? "somebody"}`;
}

function Ids({ title, ids, children }: { title: string; ids: readonly string[]; children?: ComponentChildren }) {
  if (ids.length === 0) return null;
  return (
    <div>
      <h4 class="note">{title}</h4>
      <p class="mono"><Foreign text={ids.join(", ")} /></p>
      {children}
    </div>
  );
}

function More({ left }: { left: number }) {
  return left > 0 ? <p class="note">and {many(left, "more task")}</p> : null;
}
