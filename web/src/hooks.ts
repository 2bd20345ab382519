// What changes by itself: stores, and the time.

import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";

/** Something mutable that says when it changed. */
export class Changing {
  private readonly readers = new Set<() => void>();
  private asked: ReturnType<typeof setTimeout> | null = null;
  private last = 0;
  /** Grows with each change that its readers were told of. */
  version = 0;

  /** The shortest time between two drawings, in ms; more where there is more to draw. */
  protected pace(): number {
    return 50;
  }

  onChange(reader: () => void): () => void {
    this.readers.add(reader);
    return () => void this.readers.delete(reader);
  }

  /** Tell the readers, at most once in a while, however often this is called. */
  protected changed(): void {
    if (this.asked !== null) return;
    const wait = Math.max(0, this.last + this.pace() - performance.now());
    this.asked = setTimeout(() => {
      this.asked = null;
      this.last = performance.now();
      this.version += 1;
      for (const reader of [...this.readers]) reader();
    }, wait);
  }
}

/** Draw again whenever it changes; its version. */
export function useChanges(store: Changing): number {
  const [, again] = useReducer<number, void>((n) => n + 1, 0);
  useEffect(() => {
    again();
    return store.onChange(() => again());
  }, [store]);
  return store.version;
}

let stopped: number | null = null;

/** From now on it is always this time: that at which a report was made. */
export function stopClock(at: number): void {
  stopped = at;
}

/** The time in unix seconds, read again every so many ms; 0: only once. */
export function useClock(every: number): number {
  const [now, setNow] = useState(() => stopped ?? Date.now() / 1000);
  useEffect(() => {
    if (stopped !== null) return;
    setNow(Date.now() / 1000);
    if (!every) return;
    const timer = setInterval(() => {
      if (!document.hidden) setNow(Date.now() / 1000);
    }, every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

/** Keep the end of a box in sight while it grows, unless its reader has scrolled away from it. */
export function useFollow<T extends HTMLElement>(follow: boolean, grown: unknown): { ref: RefObject<T | null>; onScroll: () => void } {
  const ref = useRef<T>(null);
  const atEnd = useRef(true);
  useLayoutEffect(() => {
    const element = ref.current;
    if (follow && element && atEnd.current) element.scrollTop = element.scrollHeight;
  }, [follow, grown]);
  const onScroll = () => {
    const element = ref.current;
    if (element) atEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 24;
  };
  return { ref, onScroll };
}

/** True while the window is as a media query says. */
export function useMedia(query: string): boolean {
  const [found, setFound] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const watch = matchMedia(query);
    const look = () => setFound(watch.matches);
    watch.addEventListener("change", look);
    return () => watch.removeEventListener("change", look);
  }, [query]);
  return found;
}

/**
 * Handle the keys that are pressed anywhere on the page. The handler of the newest drawing is the one that is asked: a key
 * that follows another at once meets the page that is seen, not the one before it.
 */
export function useKeys(onKey: (event: KeyboardEvent) => void): void {
  const newest = useRef(onKey);
  useLayoutEffect(() => {
    newest.current = onKey;
  });
  useLayoutEffect(() => {
    const listen = (event: KeyboardEvent) => newest.current(event);
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, []);
}

/**
 * A function that moves the focus to what a selector finds beside `key`, as soon as that is shown: who is fast presses a key
 * before it is. `shown`: the key of what is shown now.
 */
export function useFocus<K>(shown: K): (key: K, selector: string) => void {
  const wanted = useRef<{ readonly key: K; readonly selector: string } | null>(null);
  const move = () => {
    if (wanted.current === null || wanted.current.key !== shown) return;
    const element = document.querySelector<HTMLElement>(wanted.current.selector);
    if (element === null) return;
    wanted.current = null;
    element.focus();
  };
  useLayoutEffect(move);
  return (key, selector) => {
    wanted.current = { key, selector };
    move();
  };
}
