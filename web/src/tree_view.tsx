// A run as a tree of its steps; and rows of steps, which other views draw in their way.

import { useMemo } from "preact/hooks";
import type { WaitsFor } from "./api";
import { dollars, duration } from "./format";
import { useClock } from "./hooks";
import { remark, ended, StepName, TallyBar, Twist } from "./step_line";
import { keyMoves } from "./tree_keys";
import type { Tree, TreeRow } from "./tree";
import { oneLine } from "./text";
import { Foreign } from "./ui";
import { Virtual } from "./virtual";

const HEIGHT = 30;

export interface RowsProps {
  readonly tree: Tree;
  readonly rows: readonly TreeRow[];
  readonly at: string | null;
  readonly version: number;
  readonly onAt: (path: string) => void;
  readonly onFold: (path: string, open: boolean) => void;
  readonly onEnter: (path: string) => void;
}

/** Rows of steps, of which one has the focus; keys move it, fold and open. */
export function Rows(props: RowsProps & { label: string; line: (row: TreeRow) => preact.ComponentChildren }) {
  const { rows, at, onAt, onFold, onEnter, label, line } = props;
  const place = useMemo(() => rows.findIndex((row) => row.path === at), [rows, at]);
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const move = keyMoves(event.key, rows, place);
    if (!move) return;
    event.preventDefault();
    if (move.fold) onFold(move.fold.path, move.fold.open);
    if (move.to !== undefined) onAt(rows[move.to]!.path);
    if (move.enter) onEnter(rows[place]!.path);
  };
  return (
    <Virtual
      count={rows.length}
      height={HEIGHT}
      at={place}
      idOf={(index) => `step-${rows[index]!.path}`}
      props={{
        role: "tree",
        "aria-label": label,
        "data-main": true,
        "aria-activedescendant": place >= 0 ? `step-${rows[place]!.path}` : undefined,
        onKeyDown: onKey,
      }}
      rowProps={(index) => {
        const row = rows[index]!;
        return {
          role: "treeitem",
          "aria-level": row.depth + 1,
          "aria-expanded": row.children > 0 ? row.open : undefined,
          "aria-selected": index === place,
          "aria-setsize": row.of,
          "aria-posinset": row.place,
          onClick: () => onAt(row.path),
        };
      }}
      row={(index) => line(rows[index]!)}
    />
  );
}

export function TreeView(props: RowsProps & { waits: ReadonlyMap<string, WaitsFor> }) {
  const { tree, onFold, waits } = props;
  const live = tree.anyLive();
  const now = useClock(live ? 1000 : 0);
  const line = (row: TreeRow) => {
    const { step } = row;
    const said = remark(step, waits.get(row.path), now);
    const tally = row.children > 1 ? tree.tally(row.path) : null;
    const took = step.duration_ms ?? (step.state === "running" && step.started_at ? (now - step.started_at) * 1000 : null);
    return (
      <div class="step-line">
        <Twist row={row} onFold={onFold} />
        <StepName step={step} name={row.name} />
        <span class="kind wideonly">{step.step_type}</span>
        {tally && row.children > 3 && <TallyBar tally={tally} />}
        {tally && row.children > 3 && <span class="soft nums wideonly">{ended(tally, step.size)}</span>}
        <span class={said.bad ? "said cut bad" : "said cut"}><Foreign text={oneLine(said.text)} /></span>
        <span class="cost nums">{dollars(step.usage?.cost_usd)}</span>
        <span class="took nums">{duration(took)}</span>
      </div>
    );
  };
  return <Rows {...props} label="Steps" line={line} />;
}
