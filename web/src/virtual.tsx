// A list of which only what is seen is in the page: rows of one height, however many they are.

import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const AROUND = 8;

interface Props {
  readonly count: number;
  readonly height: number;
  /** The row that has the focus; it is scrolled into sight when it changes. */
  readonly at: number;
  readonly row: (index: number) => ComponentChildren;
  readonly idOf: (index: number) => string;
  readonly props: { readonly [name: string]: unknown };
  readonly rowProps: (index: number) => { readonly [name: string]: unknown };
  readonly box?: RefObject<HTMLDivElement | null>;
  /** Called when the end of the list comes near. */
  readonly onEnd?: () => void;
}

export function Virtual({ count, height, at, row, idOf, props, rowProps, box, onEnd }: Props) {
  const own = useRef<HTMLDivElement>(null);
  const frame = box ?? own;
  const [seen, setSeen] = useState({ top: 0, height: 800 });

  useLayoutEffect(() => {
    const element = frame.current;
    if (!element) return;
    let asked = 0;
    const look = () => {
      asked = 0;
      setSeen({ top: element.scrollTop, height: element.clientHeight });
    };
    const later = () => {
      asked ||= requestAnimationFrame(look);
    };
    const watch = new ResizeObserver(later);
    watch.observe(element);
    element.addEventListener("scroll", later, { passive: true });
    look();
    return () => {
      watch.disconnect();
      element.removeEventListener("scroll", later);
      cancelAnimationFrame(asked);
    };
  }, [frame]);

  useEffect(() => {
    const element = frame.current;
    if (!element || at < 0 || at >= count) return;
    const top = at * height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + height > element.scrollTop + element.clientHeight) {
      element.scrollTop = top + height - element.clientHeight;
    }
    // Only when the row is another: what comes in above must not pull the reader away.
  }, [at, frame, height]);

  const first = Math.max(0, Math.floor(seen.top / height) - AROUND);
  const last = Math.min(count, Math.ceil((seen.top + seen.height) / height) + AROUND);

  useEffect(() => {
    if (onEnd && count > 0 && last >= count) onEnd();
  }, [onEnd, last, count]);

  const rows: ComponentChildren[] = [];
  const drawn = (index: number) => (
    <div
      key={idOf(index)}
      id={idOf(index)}
      class={index === at ? "line at" : "line"}
      style={{ top: `${index * height}px`, height: `${height}px` }}
      {...rowProps(index)}
    >
      {row(index)}
    </div>
  );
  for (let index = first; index < last; index++) rows.push(drawn(index));
  // The row with the focus stays in the page, so that a screen reader does not lose it.
  if (at >= 0 && at < count && (at < first || at >= last)) rows.push(drawn(at));

  return (
    <div class="scroll" ref={frame} tabIndex={0} {...props}>
      <div class="sheet" role="presentation" style={{ height: `${count * height}px` }}>
        {rows}
      </div>
    </div>
  );
}
