// What every part of the page uses: text that is somebody else's, dialogs, notices.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { size } from "./format";
import { useFollow } from "./hooks";
import { Icon, type Picture, StateIcon } from "./icons";
import { visible } from "./text";

/** Text of a run on one line, apart from what stands around it. */
export function Foreign({ text, class: names = "" }: { text: string; class?: string }) {
  return <bdi class={names}>{visible(text)}</bdi>;
}

/** Something is on its way; it says so only if it takes a while. */
export function Loading() {
  return <div class="empty late" aria-busy="true"><p>Loading…</p></div>;
}

const SHOWN = 24 * 1024;
const MORE = 256 * 1024;

interface TextBlockProps {
  readonly title: string;
  readonly text: string;
  readonly note?: ComponentChildren;
  readonly prose?: boolean;
  readonly bad?: boolean;
  /** Show the end, and stay there while it grows. */
  readonly follow?: boolean;
  /** Show a few lines of it first. */
  readonly short?: boolean;
}

/** A long text of a run: a part of it first, and the rest when somebody asks. */
export function TextBlock({ title, text, note, prose, bad, follow, short }: TextBlockProps) {
  const [most, setMost] = useState(SHOWN);
  const [whole, setWhole] = useState(!short || !isLong(text));
  const long = text.length > most;
  const shown = visible(!long ? text : follow ? text.slice(-most) : text.slice(0, most));
  const following = useFollow<HTMLPreElement>(follow ?? false, shown);
  return (
    <section class="part">
      <div class="line1">
        <h3>{title}</h3>
        {note ? <span class="note">{note}</span> : null}
        <CopyButton text={text} what={title} />
      </div>
      <pre
        ref={following.ref}
        class={`block${prose ? " prose" : ""}${bad ? " bad" : ""}${whole ? "" : " clamped"}`}
        tabIndex={0}
        role="region"
        aria-label={title}
        dir="auto"
        onScroll={follow ? following.onScroll : undefined}
      >
        {shown}
      </pre>
      {!whole && (
        <div>
          <button type="button" class="button small" aria-expanded="false" onClick={() => setWhole(true)}>show all of it</button>
        </div>
      )}
      {long && whole && (
        <div>
          <button type="button" class="button small" onClick={() => setMost(most + MORE)}>
            {text.length - most <= MORE ? "show all" : `show ${size(MORE)} more`} of {size(text.length)}
          </button>
        </div>
      )}
    </section>
  );
}

function isLong(text: string): boolean {
  return text.length > 900 || text.split("\n", 12).length > 10;
}

export function CopyButton({ text, what, icon = "copy" }: { text: string; what: string; icon?: Picture }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  if (!navigator.clipboard) return null;
  const copy = () => void navigator.clipboard.writeText(text).then(() => setDone(true), () => {});
  return (
    <button type="button" class="button bare small" aria-label={`copy ${what}`} title={`copy ${what}`} onClick={copy}>
      <Icon of={done ? "check" : icon} />
    </button>
  );
}

interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

/** A dialog over the page; Escape closes it, and the focus goes back to where it was. */
export function Dialog({ title, onClose, children }: DialogProps) {
  const box = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={box}
      aria-label={title}
      onClose={onClose}
      onClick={(event) => {
        if (event.target === box.current) box.current?.close();
      }}
    >
      {children}
    </dialog>
  );
}

// -- notices: what an action did, or why it was refused ------------------------------------------

export interface Notice {
  readonly id: number;
  readonly good: boolean;
  readonly text: string;
}

type Listener = (notices: readonly Notice[]) => void;

const listeners = new Set<Listener>();
let notices: readonly Notice[] = [];
let lastId = 0;

function publish(next: readonly Notice[]): void {
  notices = next;
  for (const listener of listeners) listener(next);
}

/** Say it at the foot of the page: good news for a while, the rest until it is closed. */
export function notify(text: string, good: boolean): void {
  const id = ++lastId;
  publish([...notices.slice(-3), { id, good, text }]);
  if (good) setTimeout(() => publish(notices.filter((one) => one.id !== id)), 6000);
}

export function Notices() {
  const [shown, setShown] = useState(notices);
  useEffect(() => {
    listeners.add(setShown);
    return () => void listeners.delete(setShown);
  }, []);
  return (
    <div class="notices" role="status" aria-live="polite">
      {shown.map((one) => (
        <div class="notice" key={one.id}>
          <StateIcon state={one.good ? "succeeded" : "failed"} />
          <span><Foreign text={one.text} /></span>
          <button
            type="button"
            class="button bare small"
            aria-label="close this notice"
            onClick={() => publish(notices.filter((other) => other.id !== one.id))}
          >
            <Icon of="close" />
          </button>
        </div>
      ))}
    </div>
  );
}
