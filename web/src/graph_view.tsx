// The graph of a run, coloured by state.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { FlowGraph } from "./api";
import { dollars, duration } from "./format";
import { failures, Matcher, planOfFlow, standings } from "./flow";
import { MOST_LABEL, place, type Plan, planOf, widthOf } from "./graph";
import { type AnyState, Icon, StateIcon, wordOf } from "./icons";
import type { RunStore } from "./run_store";
import { ended, endedText } from "./step_line";
import { oneLine, visible } from "./text";
import { type Folds, nameIn, type Tree } from "./tree";

interface Props {
  readonly store: RunStore;
  readonly tree: Tree;
  readonly version: number;
  readonly folds: Folds;
  readonly at: string | null;
  readonly onAt: (path: string) => void;
  readonly onFold: (path: string, open: boolean) => void;
}

const SCALES = [0.35, 0.5, 0.7, 0.85, 1, 1.25, 1.6];

/** What the page knows of a node: the state that it is shown in, and the step that it leads to. */
interface Shown {
  readonly state: AnyState | null;
  readonly sub: string;
  /** What it took, and cost. */
  readonly spent: string;
  readonly path: string | null;
}

/** The graph of its workflow, if its source is known here, or of what the run did. */
export function GraphView(props: Props) {
  const { store } = props;
  const [flow, setFlow] = useState<FlowGraph | null>(null);
  const [ran, setRan] = useState(false);
  useEffect(() => {
    let gone = false;
    store.source.flow(store.id).then((found) => !gone && setFlow(found), () => {});
    return () => {
      gone = true;
    };
  }, [store]);
  return (
    <div class="graph-frame">
      {flow !== null && !ran ? <FlowView {...props} flow={flow} /> : <RanView {...props} />}
      {flow !== null && (
        <div class="chips which" role="group" aria-label="Which graph">
          <button type="button" class="chip" aria-pressed={!ran} onClick={() => setRan(false)}>workflow</button>
          <button type="button" class="chip" aria-pressed={ran} onClick={() => setRan(true)}>as it ran</button>
        </div>
      )}
    </div>
  );
}

function RanView({ tree, version, folds, at, onAt, onFold }: Props) {
  const plan = useMemo(() => planOf(tree, folds, (path) => oneLine(nameIn(path, tree.nodes.get(path)?.parent ?? null), 80)), [tree, version, folds]);
  const shown = (id: string): Shown => {
    const step = tree.get(id);
    const below = tree.children(id).length;
    if (!step) return { state: null, sub: plan.nodes.find((one) => one.id === id)?.sub ?? "", spent: "", path: null };
    const sub = below > 1 ? `${step.step_type} · ${ended(tree.tally(id), step.size)}` : step.step_type;
    return { state: step.state, sub, spent: spentText(step.duration_ms, step.usage?.cost_usd), path: id };
  };
  const fold = (id: string) => {
    if (tree.children(id).length > 0) onFold(id, plan.edges.every((edge) => !edge.to.startsWith(`${id}/`)));
  };
  return <Drawing plan={plan} shown={shown} at={at} onAt={onAt} onEnter={fold} />;
}

function FlowView({ flow, tree, version, at, onAt }: Props & { flow: FlowGraph }) {
  const matcher = useMemo(() => new Matcher(flow), [flow]);
  const plan = useMemo(() => planOfFlow(flow), [flow]);
  const found = useMemo(() => standings(tree, matcher), [tree, version, matcher]);
  const failed = useMemo(() => failures(tree, matcher), [tree, version, matcher]);
  const kinds = useMemo(() => new Map(flow.nodes.map((one) => [one.id, one])), [flow]);
  const shown = (id: string): Shown => {
    const standing = found.get(id);
    const node = kinds.get(id);
    if (!standing) return { state: node?.name ? "open" : null, sub: node?.kind ?? "", spent: "", path: null };
    const sub = standing.all > 1 ? `${node?.kind} · ${endedText(standing.ended, standing.all, failed.get(id) ?? 0)}` : (node?.kind ?? "");
    // Members work beside one another: what all of them took says little.
    return { state: standing.state, sub, spent: spentText(standing.all > 1 ? null : standing.took_ms, standing.cost_usd), path: standing.path };
  };
  const here = at === null ? null : (matcher.node(at)?.id ?? null);
  return <Drawing plan={plan} shown={shown} at={here} onAt={(id) => {
    const path = found.get(id)?.path;
    if (path !== undefined) onAt(path);
  }} onEnter={() => {}} />;
}

function spentText(took: number | null, cost: number | null | undefined): string {
  return [duration(took), cost ? dollars(cost) : ""].filter(Boolean).join(" · ");
}

interface DrawingProps {
  readonly plan: Plan;
  readonly shown: (id: string) => Shown;
  readonly at: string | null;
  readonly onAt: (id: string) => void;
  readonly onEnter: (id: string) => void;
}

function Drawing({ plan, shown, at, onAt, onEnter }: DrawingProps) {
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
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const order = placed.nodes.map((one) => one.id).filter((id) => shown(id).path !== null);
    const here = at === null ? -1 : order.indexOf(at);
    const step = { j: 1, ArrowDown: 1, ArrowRight: 1, k: -1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (event.key === "Enter" && at !== null) {
      event.preventDefault();
      return onEnter(at);
    }
    if (step === undefined || order.length === 0) return;
    event.preventDefault();
    onAt(order[Math.max(0, Math.min(order.length - 1, here + step))]!);
  };

  return (
    <>
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
          {placed.frames.map((one) => (
            <rect key={one.id} class="frame" x={one.x} y={one.y} width={one.w} height={one.h} rx={10} />
          ))}
          {placed.edges.map((edge) => (
            <path key={edge.id} class="edge" d={edge.d} marker-end="url(#arrow)" stroke-dasharray={edge.dashed ? "4 3" : undefined} />
          ))}
          {placed.edges.map((edge) =>
            edge.label ? (
              <text key={edge.id} class="sub said" x={edge.at.x} y={edge.at.y + 4} text-anchor="middle" unicode-bidi="isolate">
                {oneLine(edge.label, MOST_LABEL)}
              </text>
            ) : null,
          )}
          {placed.nodes.map((one) => {
            const node = names.get(one.id);
            if (!node) return null;
            const { state, sub, spent, path } = shown(one.id);
            const text = oneLine(node.label, 80);
            const still = state === null; // no step: where it begins, ends, or is asked which way
            const left = still ? one.w / 2 : 36;
            return (
              <g
                key={one.id}
                id={`node-${one.id}`}
                class={`node s-${state ?? "none"}${one.id === at ? " at" : ""}${state !== null && path === null ? " never" : ""}`}
                transform={`translate(${one.x} ${one.y})`}
                role="img"
                aria-label={`${text}${sub ? `, ${visible(sub)}` : ""}${state ? `: ${path === null ? "not begun" : wordOf(state)}` : ""}${spent ? `, ${spent}` : ""}`}
                onClick={() => path !== null && onAt(one.id)}
                onDblClick={() => onEnter(one.id)}
              >
                <rect class="box" width={one.w} height={one.h} rx={still ? one.h / 2 : 7} />
                {state !== null && (
                  <svg x="11" y={one.h / 2 - 8} width="16" height="16">
                    <StateIcon state={state} />
                  </svg>
                )}
                <text x={left} y={sub ? 19 : 27} text-anchor={still ? "middle" : undefined} unicode-bidi="isolate">
                  {fitted(text, still ? one.w - 16 : one.w - 44, 7)}
                </text>
                {sub && <text x={left} y="35" class="sub" unicode-bidi="isolate">{fitted(spent ? `${sub} · ${spent}` : sub, one.w - 44, 6)}</text>}
              </g>
            );
          })}
        </svg>
      </div>
      <div class="zoom">
        <button type="button" class="button square" aria-label="smaller" disabled={scale === 0} onClick={() => setScale(scale - 1)}><Icon of="minus" /></button>
        <button type="button" class="button square" aria-label="larger" disabled={scale === SCALES.length - 1} onClick={() => setScale(scale + 1)}><Icon of="plus" /></button>
      </div>
    </>
  );
}

function fitted(text: string, width: number, each: number): string {
  const most = Math.floor(width / each);
  return text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text;
}
