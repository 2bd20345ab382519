// One event of the record, as it is recorded.

import { useEffect, useState } from "preact/hooks";
import { moment } from "./format";
import { Icon } from "./icons";
import { go } from "./navigation";
import type { RunPlace } from "./log_view";
import type { RunStore } from "./run_store";
import { pretty } from "./text";
import { CopyButton, Foreign, TextBlock } from "./ui";

type Recorded = { readonly [name: string]: unknown };

const RESTED_MS = 60;

interface Props {
  readonly store: RunStore;
  readonly place: RunPlace;
  readonly line: number;
  readonly onClose: () => void;
}

export function EventPane({ store, place, line, onClose }: Props) {
  const [event, setEvent] = useState<Recorded | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let gone = false;
    const load = async () => {
      try {
        const found = await store.source.event(store.id, line);
        if (gone) return;
        setEvent(found);
        setProblem("");
      } catch (error) {
        if (!gone) setProblem((error as Error).message);
      }
    };
    // Who goes through the lines with a key held down is asked for nothing until it rests.
    const timer = setTimeout(() => void load(), RESTED_MS);
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [store, line]);
  const shown = event?.["seq"] === line ? event : null;
  const isRaw = store.source.frozenAt === null;
  const path = typeof shown?.["path"] === "string" ? shown["path"] : "";
  return (
    <aside class="pane" aria-label={`Event ${line}`}>
      <header class="pane-head">
        <div class="title">
          <h2 class="grow cut">{shown ? String(shown["type"]) : "Event"}</h2>
          <CopyButton text={location.href} what="the link to this line" icon="link" />
          <button type="button" class="button bare square" aria-label="Close the event" onClick={onClose}><Icon of="close" /></button>
        </div>
        <div class="facts">
          <span class="nums">event <b>{line}</b></span>
          {shown && <span class="nums">{moment(shown["at"] as number)}</span>}
          {path && <span class="mono cut"><Foreign text={path} /></span>}
        </div>
        {store.tree.get(path) && (
          <div><button type="button" class="button small" onClick={() => go({ ...place, step: path })}>Show the step</button></div>
        )}
      </header>
      <div class="pane-body" tabIndex={0} role="region" aria-label="The event as it is recorded">
        {problem && <p class="wrong"><Foreign text={problem} /></p>}
        {shown?.["cut"] === true && <p class="note">It is too long to be shown. The record that can be downloaded has it whole.</p>}
        {shown && (isRaw
          ? <TextBlock title="As it is recorded" text={pretty(shown)} />
          : <><TextBlock title="In words" text={String(shown["text"])} prose /><p class="note">A report has no raw events in it: <code>handrail export</code> writes them.</p></>)}
      </div>
    </aside>
  );
}
