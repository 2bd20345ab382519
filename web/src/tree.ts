// The steps of a run as a tree, and the rows of it that are seen. Pure.

import type { StepRow, StepState } from "./api";

export interface Node {
  row: StepRow;
  parent: string | null;
  readonly children: string[];
}

export interface TreeRow {
  readonly path: string;
  /** What it is called where it stands. */
  readonly name: string;
  readonly step: StepRow;
  readonly depth: number;
  readonly children: number;
  readonly open: boolean;
  /** Its place among its siblings, from 1, and how many they are. */
  readonly place: number;
  readonly of: number;
}

export type Tally = Partial<Record<StepState, number>>;

export interface Filter {
  readonly text: string;
  readonly states: ReadonlySet<StepState>;
}

export const ALL: Filter = { text: "", states: new Set() };

/** A group of more members than these begins folded, and so does a member that ended well. */
export const FOLDED_FROM = 60;
/** A group that ended well begins folded from fewer members on. */
const FOLDED_AT_END_FROM = 8;

export const LIVE: ReadonlySet<StepState> = new Set(["running", "waiting"]);

/**
 * All steps of a run by path, those of one body or group by when they began. Mutable.
 *
 * What is told while a run goes on may tell of a step before it tells of the one around it: until
 * then it stands in the nearest one that is known.
 */
export class Tree {
  readonly nodes = new Map<string, Node>();
  readonly roots: string[] = [];
  /** Steps that wait for the one around them, by its path. */
  private readonly strays = new Map<string, string[]>();

  constructor(rows: Iterable<StepRow> = []) {
    for (const row of rows) this.put(row);
  }

  /** Add a step, or put its new state in the place of the old one. */
  put(row: StepRow): void {
    const { path } = row;
    const known = this.nodes.get(path);
    if (known) {
      known.row = row;
      return;
    }
    const around = aroundIt(path);
    const parent = this.nearest(path);
    this.nodes.set(path, { row, parent, children: [] });
    this.insert(path, parent);
    if (around.length > 0 && (parent === null || !around.includes(parent))) {
      for (const one of around) this.strays.set(one, [...(this.strays.get(one) ?? []), path]);
    }
    for (const stray of this.strays.get(path) ?? []) this.move(stray, path);
    this.strays.delete(path);
  }

  private nearest(path: string): string | null {
    for (let around = aroundIt(path); around.length > 0; around = aroundIt(around[0]!)) {
      const found = around.find((one) => this.nodes.has(one));
      if (found !== undefined) return found;
    }
    return null;
  }

  private insert(path: string, parent: string | null): void {
    const siblings = parent === null ? this.roots : this.nodes.get(parent)!.children;
    const began = this.nodes.get(path)!.row.started_at;
    let place = siblings.length;
    if (began !== null) {
      while (place > 0 && (this.nodes.get(siblings[place - 1]!)!.row.started_at ?? 0) > began) place--;
    }
    siblings.splice(place, 0, path);
  }

  private move(path: string, to: string): void {
    const node = this.nodes.get(path)!;
    if (node.parent === to || aroundIt(path).some((one) => one === node.parent)) return;
    const siblings = node.parent === null ? this.roots : this.nodes.get(node.parent)!.children;
    siblings.splice(siblings.lastIndexOf(path), 1);
    node.parent = to;
    this.insert(path, to);
  }

  get(path: string): StepRow | undefined {
    return this.nodes.get(path)?.row;
  }

  children(path: string | null): readonly string[] {
    return path === null ? this.roots : (this.nodes.get(path)?.children ?? []);
  }

  /** Those around a step, outermost first. */
  above(path: string): string[] {
    const found: string[] = [];
    for (let at = this.nodes.get(path)?.parent ?? null; at !== null; ) {
      found.unshift(at);
      at = this.nodes.get(at)?.parent ?? null;
    }
    return found;
  }

  /** True if any step has not ended and is at work, or waits. */
  anyLive(): boolean {
    return this.roots.some((path) => LIVE.has(this.nodes.get(path)!.row.state));
  }

  /** How many just below a step, or of the run, are in each state. */
  tally(path: string | null): Tally {
    const found: Tally = {};
    for (const child of this.children(path)) {
      const { state } = this.nodes.get(child)!.row;
      found[state] = (found[state] ?? 0) + 1;
    }
    return found;
  }

  /** How many steps that have none below them are in each state. */
  leaves(): Tally {
    const found: Tally = {};
    for (const { row, children } of this.nodes.values()) {
      if (children.length === 0) found[row.state] = (found[row.state] ?? 0) + 1;
    }
    return found;
  }
}

/** The path of the step around this one; of a later attempt (`name~2`) also the step itself. */
export function aroundIt(path: string): string[] {
  const end = path.lastIndexOf("/");
  if (end <= 0) return [];
  const above = path.slice(0, end);
  const first = above.replace(/~\d+$/, "");
  return first === above ? [above] : [above, first];
}

/** What a step is called below the one around it: `1/tests` of `verify/1/tests` in `verify`. */
export function nameIn(path: string, parent: string | null): string {
  const start = parent !== null && path.startsWith(`${parent}/`) ? parent.length + 1 : path.lastIndexOf("/") + 1;
  const name = parent === null ? path : path.slice(start);
  try {
    return name.includes("%") ? decodeURIComponent(name) : name;
  } catch {
    return name;
  }
}

/** How many steps that have none below them failed by each kind of error, the most frequent first. */
export function reasons(tree: Tree): [string, number][] {
  const found = new Map<string, number>();
  for (const { row, children } of tree.nodes.values()) {
    if (children.length > 0 || row.state !== "failed") continue;
    const kind = shortType(row.error_type);
    found.set(kind, (found.get(kind) ?? 0) + 1);
  }
  return [...found].sort((a, b) => b[1] - a[1]);
}

/** The class of an error without its module. */
export function shortType(type: string | null): string {
  return type ? type.slice(type.lastIndexOf(".") + 1) : "error";
}

/** What a person has opened and folded by hand; the rest goes by the size of the group. */
export type Folds = ReadonlyMap<string, boolean>;

export function isOpen(tree: Tree, path: string, folds: Folds): boolean {
  const known = folds.get(path);
  if (known !== undefined) return known;
  const { row, children } = tree.nodes.get(path)!;
  const well = row.state === "succeeded" || row.state === "skipped" || row.state === "defaulted";
  if (well && row.step_type === "member") return false;
  return children.length <= (well ? FOLDED_AT_END_FROM : FOLDED_FROM);
}

/** The rows that are seen, from the top; with a filter those that fit, and all around them. */
export function rowsOf(tree: Tree, folds: Folds, filter: Filter = ALL): TreeRow[] {
  const shown = fitting(tree, filter);
  const rows: TreeRow[] = [];
  const walk = (paths: readonly string[], depth: number): void => {
    const seen = shown === null ? paths : paths.filter((path) => shown.has(path));
    seen.forEach((path, place) => {
      const node = tree.nodes.get(path)!;
      const below = node.children;
      const open = shown === null ? isOpen(tree, path, folds) : (folds.get(path) ?? true);
      rows.push({
        path,
        name: nameIn(path, node.parent),
        step: node.row,
        depth,
        children: below.length,
        open: open && below.length > 0,
        place: place + 1,
        of: seen.length,
      });
      if (open && below.length > 0) walk(below, depth + 1);
    });
  };
  walk(tree.roots, 0);
  return rows;
}

/** The paths that a filter leaves, with all around them; null if it leaves all. */
function fitting(tree: Tree, filter: Filter): Set<string> | null {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0 && filter.states.size === 0) return null;
  const found = new Set<string>();
  for (const [path, { row }] of tree.nodes) {
    if (filter.states.size > 0 && !filter.states.has(row.state)) continue;
    if (words.length > 0) {
      const text = `${path} ${row.step_type} ${row.state} ${row.error_type ?? ""} ${row.error ?? ""}`.toLowerCase();
      if (!words.every((word) => text.includes(word))) continue;
    }
    for (let at: string | null = path; at !== null && !found.has(at); ) {
      found.add(at);
      at = tree.nodes.get(at)?.parent ?? null;
    }
  }
  return found;
}
