// What a key does in the tree. Pure.

import type { TreeRow } from "./tree";

export interface Move {
  readonly to?: number;
  readonly fold?: { readonly path: string; readonly open: boolean };
  readonly enter?: boolean;
}

/** The move that a key means, from the row at `place` (-1: none); null if it means none. */
export function keyMoves(key: string, rows: readonly TreeRow[], place: number): Move | null {
  if (rows.length === 0) return null;
  const within = (index: number): Move => ({ to: Math.max(0, Math.min(rows.length - 1, index)) });
  const row = rows[place];
  switch (key) {
    case "j":
    case "ArrowDown":
      return within(place + 1);
    case "k":
    case "ArrowUp":
      return within(place - 1);
    case "PageDown":
      return within(place + 15);
    case "PageUp":
      return within(place - 15);
    case "Home":
      return within(0);
    case "End":
      return within(rows.length - 1);
    case "l":
    case "ArrowRight":
      if (!row || row.children === 0) return null;
      return row.open ? within(place + 1) : { fold: { path: row.path, open: true } };
    case "h":
    case "ArrowLeft": {
      if (!row) return null;
      if (row.open) return { fold: { path: row.path, open: false } };
      for (let above = place - 1; above >= 0; above--) {
        if (rows[above]!.depth < row.depth) return { to: above };
      }
      return null;
    }
    case "Enter":
      return row ? { enter: true } : null;
    default:
      return null;
  }
}
