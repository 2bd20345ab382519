// What an agent was asked, did and said; what a program printed.

import { useMemo, useState } from "preact/hooks";
import { activityOf, type Deed } from "./activity";
import type { StepDetail } from "./api";
import { duration, many, moment } from "./format";
import { useFollow } from "./hooks";
import { Icon, StateIcon } from "./icons";
import { outputOf } from "./outputs";
import type { RunStore } from "./run_store";
import type { TextKind } from "./source";
import { oneLine, pretty } from "./text";
import { CopyButton, Foreign, TextBlock } from "./ui";

interface Props {
  readonly store: RunStore;
  readonly detail: StepDetail;
  /** It may say more. */
  readonly live: boolean;
}

/** A text of a step as far as it was loaded, with what came since. */
function grown(store: RunStore, loaded: string, kind: TextKind): string {
  const more = store.streams.get(kind)?.text;
  return more ? loaded + more : loaded;
}

export function AgentParts({ store, detail, live }: Props) {
  const { turns, turns_before: before } = detail;
  const [all, setAll] = useState(false);
  const activity = grown(store, detail.activity, "activity");
  const found = useMemo(() => activityOf(activity), [activity]);
  const shown = all ? turns : turns.slice(-1);
  const note = live ? "live" : undefined;
  return (
    <>
      {!all && turns.length > 1 && (
        <div>
          <button type="button" class="button small" onClick={() => setAll(true)}>show {many(turns.length - 1, "earlier prompt")}</button>
        </div>
      )}
      {shown.map((turn, place) => {
        const number = before + turns.length - shown.length + place + 1;
        const which = before + turns.length > 1 ? ` ${number}` : "";
        const last = place === shown.length - 1;
        return [
          <TextBlock key={`p${number}`} title={`Prompt${which}`} text={turn.prompt} prose short />,
          !last && turn.answer ? <TextBlock key={`a${number}`} title={`Answer${which}`} text={turn.answer} prose short /> : null,
        ];
      })}
      {found.deeds.length > 0 && <Deeds deeds={found.deeds} live={live} />}
      {found.files.length > 0 && <Files files={found.files} />}
      <Text title="Thoughts" text={grown(store, detail.reasoning, "reasoning")} live={live} note={note} short />
      <Text title="Answer" text={grown(store, detail.text, "message")} live={live} note={note} />
    </>
  );
}

function Text(props: { title: string; text: string; live: boolean; note: string | undefined; short?: boolean }) {
  const { title, text, live, note, short = false } = props;
  if (!text) return null;
  return <TextBlock key={live ? "live" : "over"} title={title} text={text} prose follow={live} short={short && !live} note={note} />;
}

export function Printed({ store, detail, live }: Props) {
  const given = outputOf(detail);
  const texts: [string, string][] = [
    ["Printed", grown(store, detail.stdout, "stdout") || given.stdout],
    ["Printed on stderr", grown(store, detail.stderr, "stderr") || given.stderr],
  ];
  return (
    <>
      {texts.map(([title, text]) => text && <TextBlock key={title} title={title} text={text} follow={live} note={live ? "live" : undefined} />)}
    </>
  );
}

const MOST_DEEDS = 100;

function Deeds({ deeds, live }: { deeds: readonly Deed[]; live: boolean }) {
  const [all, setAll] = useState(false);
  const shown = all ? deeds : deeds.slice(-MOST_DEEDS);
  const following = useFollow<HTMLOListElement>(live, deeds.length);
  return (
    <section class="part">
      <div class="line1">
        <h3>What it did</h3>
        {live && <span class="note">live</span>}
      </div>
      {shown.length < deeds.length && (
        <div>
          <button type="button" class="button small" onClick={() => setAll(true)}>show {many(deeds.length - shown.length, "earlier one")}</button>
        </div>
      )}
      <ol class="deeds" ref={following.ref} onScroll={following.onScroll} tabIndex={0} aria-label="What it did">
        {shown.map((deed, place) => <DeedLine key={deeds.length - shown.length + place} deed={deed} />)}
      </ol>
    </section>
  );
}

function DeedLine({ deed }: { deed: Deed }) {
  const [open, setOpen] = useState(false);
  const more = deed.output !== "" || deed.input !== null;
  const line = (
    <>
      {deed.ok === null ? <span class="icon" /> : deed.ok ? <Icon of="check" /> : <StateIcon state="failed" />}
      <span class="tool"><Foreign text={deed.name} /></span>
      <span class="brief mono cut"><Foreign text={oneLine(deed.brief, 160)} /></span>
      <span class="soft nums">{duration(deed.took)}</span>
    </>
  );
  return (
    <li>
      {more ? (
        <button type="button" class="deed" aria-expanded={open} title={moment(deed.at)} onClick={() => setOpen(!open)}>{line}</button>
      ) : (
        <span class="deed" title={moment(deed.at)}>{line}</span>
      )}
      {open && (
        <div class="inside">
          {deed.input !== null && <TextBlock title="Given" text={pretty(deed.input)} short />}
          {deed.output && <TextBlock title="It gave" text={deed.output} short />}
        </div>
      )}
    </li>
  );
}

function Files({ files }: { files: readonly string[] }) {
  return (
    <section class="part">
      <div class="line1">
        <h3>Files changed</h3>
        <CopyButton text={files.join("\n")} what="the files" />
      </div>
      <ul class="files">
        {files.map((file) => <li key={file} class="mono"><Foreign text={file} /></li>)}
      </ul>
    </section>
  );
}
