// What differs between two texts, line by line. Pure.

export type Change = " " | "-" | "+";

export interface DiffLine {
  readonly change: Change;
  readonly text: string;
}

/** More lines than these, left after the equal ones at both ends, are not compared one by one. */
const MOST = 1200;
/** So many equal lines are kept around a change. */
const AROUND = 3;

/** The lines of both in order: those that are equal once, of the rest those of `a` before those of `b`. */
export function diffOf(a: string, b: string): DiffLine[] {
  const [before, after] = [a.split("\n"), b.split("\n")];
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head++;
  let tail = 0;
  while (tail < before.length - head && tail < after.length - head && before.at(-1 - tail) === after.at(-1 - tail)) tail++;
  const same = (texts: readonly string[]): DiffLine[] => texts.map((text) => ({ change: " ", text }));
  return [
    ...same(before.slice(0, head)),
    ...middle(before.slice(head, before.length - tail), after.slice(head, after.length - tail)),
    ...same(before.slice(before.length - tail)),
  ];
}

function middle(a: readonly string[], b: readonly string[]): DiffLine[] {
  if (a.length > MOST || b.length > MOST) {
    return [...a.map((text) => ({ change: "-" as const, text })), ...b.map((text) => ({ change: "+" as const, text }))];
  }
  // The length of the longest common part of a[i..] and b[j..].
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] =
        a[i] === b[j] ? common[(i + 1) * width + j + 1]! + 1 : Math.max(common[(i + 1) * width + j]!, common[i * width + j + 1]!);
    }
  }
  const found: DiffLine[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push({ change: " ", text: a[i]! });
      i++;
      j++;
    } else if (i < a.length && (j >= b.length || common[(i + 1) * width + j]! >= common[i * width + j + 1]!)) {
      found.push({ change: "-", text: a[i++]! });
    } else {
      found.push({ change: "+", text: b[j++]! });
    }
  }
  return found;
}

/** The lines without equal ones that are far from any change; null: some are left out here. */
export function nearChanges(lines: readonly DiffLine[]): (DiffLine | null)[] {
  const near = new Set<number>();
  lines.forEach((line, place) => {
    if (line.change === " ") return;
    for (let at = place - AROUND; at <= place + AROUND; at++) near.add(at);
  });
  const found: (DiffLine | null)[] = [];
  lines.forEach((line, place) => {
    if (near.has(place)) found.push(line);
    else if (found.at(-1) !== null) found.push(null);
  });
  return found;
}
