// The graph of a run, coloured by state.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { place, planOf, widthOf } from "./graph";
import { Icon, StateIcon, wordOf } from "./icons";
import { ended, lastPart } from "./step_line";
import { oneLine, visible } from "./text";
import type { Folds, Tree } from "./tree";

interface Props {
  readonly tree: Tree;
  readonly version: number;
  readonly folds: Folds;
  readonly at: string | null;
  readonly onAt: (path: string) => void;
  readonly onFold: (path: string, open: boolean) => void;
}

const SCALES = [0.35, 0.5, 0.7, 0.85, 1, 1.25, 1.6];

export function GraphView({ tree, version, folds, at, onAt, onFold }: Props) {
  const plan = useMemo(() => planOf(tree, folds, (path) => oneLine(lastPart(path), 80)), [tree, version, folds]);
  // The colours change often, the form seldom: it is laid out again only when it did.
  const form = plan.nodes.map((one) => `${one.id}\u0001${widthOf(one)}`).join("\u0000") + plan.edges.length;
  const placed = useMemo(() => place(plan), [form]);
  const names = useMemo(() => new Map(plan.nodes.map((one) => [one.id, one])), [plan]);
  const [scale, setScale] = useState(4);
  const box = useRef<HTMLDivElement>(null);

  useEffect(() => {
    const frame = box.current;
    if (!frame) return;
    const fits = SCALES.findLastIndex((one) => one <= 1 && placed.width * one <= frame.clientWidth);
    setScale(Math.max(1, fits));
    frame.scrollLeft = Math.max(0, (placed.width * SCALES[Math.max(1, fits)]! - frame.clientWidth) / 2);
  }, []);
  useEffect(() => {
    const element = at === null ? null : document.getElementById(`node-${at}`);
    element?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [at]);

  const factor = SCALES[scale]!;
  const onKey = (event: KeyboardEvent) => {
    const order = placed.nodes.map((one) => one.id).filter(Boolean);
    const here = at === null ? -1 : order.indexOf(at);
    const step = { j: 1, ArrowDown: 1, ArrowRight: 1, k: -1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" && at !== null) {
      event.preventDefault();
      if (tree.children(at).length > 0) onFold(at, plan.edges.every((edge) => !edge.to.startsWith(`${at}/`)));
      return;
    }
    if (step === undefined || order.length === 0) return;
    event.preventDefault();
    onAt(order[Math.max(0, Math.min(order.length - 1, here + step))]!);
  };

  return (
    <div class="graph-frame">
      <div class="graph" ref={box} tabIndex={0} data-main role="group" aria-label="Graph of the steps; arrow keys move, Enter opens a group" onKeyDown={onKey}>
        <svg
          class="plan"
          width={placed.width * factor}
          height={placed.height * factor}
          viewBox={`0 0 ${placed.width} ${placed.height}`}
        >
          <defs>
            <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
              <path class="arrow" d="M0 0.8L7.5 4 0 7.2z" />
            </marker>
          </defs>
          {placed.edges.map((edge) => <path key={edge.id} class="edge" d={edge.d} marker-end="url(#arrow)" />)}
          {placed.nodes.map((one) => {
            const node = names.get(one.id);
            const step = tree.get(one.id);
            if (!node) return null;
            const state = step?.state ?? "open";
            const below = tree.children(one.id).length;
            const sub = below > 1 && step ? `${step.step_type} · ${ended(tree.tally(one.id), step.size)}` : node.sub;
            return (
              <g
                key={one.id}
                id={`node-${one.id}`}
                class={`node s-${state}${one.id === at ? " at" : ""}`}
                transform={`translate(${one.x} ${one.y})`}
                role="img"
                aria-label={`${visible(node.label)}, ${node.sub}: ${wordOf(state)}`}
                onClick={() => one.id && onAt(one.id)}
                onDblClick={() => below > 0 && onFold(one.id, plan.edges.every((edge) => !edge.to.startsWith(`${one.id}/`)))}
              >
                <rect class="box" width={one.w} height={one.h} rx="7" />
                {step && (
                  <svg x="11" y={one.h / 2 - 8} width="16" height="16">
                    <StateIcon state={state} />
                  </svg>
                )}
                <text x="36" y="19" unicode-bidi="isolate">{fitted(node.label, one.w - 44, 7)}</text>
                <text x="36" y="35" class="sub" unicode-bidi="isolate">{fitted(sub, one.w - 44, 6)}</text>
              </g>
            );
          })}
        </svg>
      </div>
      <div class="zoom">
        <button type="button" class="button square" aria-label="smaller" disabled={scale === 0} onClick={() => setScale(scale - 1)}><Icon of="minus" /></button>
        <button type="button" class="button square" aria-label="larger" disabled={scale === SCALES.length - 1} onClick={() => setScale(scale + 1)}><Icon of="plus" /></button>
      </div>
    </div>
  );
}

function fitted(text: string, width: number, each: number): string {
  const most = Math.floor(width / each);
  return text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text;
}
