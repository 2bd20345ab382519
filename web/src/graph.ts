// A run as a graph: what followed what, and what ran beside what. Pure but for the layout library.

import { Graph, layout } from "@dagrejs/dagre";
import { type Folds, isOpen, type Tree } from "./tree";

export interface GraphNode {
  readonly id: string;
  readonly label: string;
  readonly sub: string;
}

export interface GraphEdge {
  readonly from: string;
  readonly to: string;
  readonly label?: string;
  readonly dashed?: boolean;
}

/** A step and all that stands in it, which are drawn in one frame; `head` is the step's own node. */
export interface Frame {
  readonly head: string;
  readonly nodes: ReadonlySet<string>;
}

export interface Plan {
  readonly nodes: readonly GraphNode[];
  readonly edges: readonly GraphEdge[];
  readonly frames?: readonly Frame[];
}

export interface Placed {
  readonly width: number;
  readonly height: number;
  readonly nodes: readonly Area[];
  /** Frames, those around others first. */
  readonly frames: readonly Area[];
  readonly edges: readonly {
    readonly id: string;
    readonly d: string;
    readonly label: string;
    readonly dashed: boolean;
    readonly at: Point;
  }[];
}

interface Area {
  readonly id: string;
  readonly x: number;
  readonly y: number;
  readonly w: number;
  readonly h: number;
}

type Point = { readonly x: number; readonly y: number };

const GROUPS = new Set(["parallel", "for_each", "race", "work"]);
/** A group of more members than these is one node, until somebody opens it. */
const MOST_BESIDE = 12;
/** The layout of more nodes than these takes too long for a page that stays fluid. */
const MOST_NODES = 120;

/** The nodes and the arrows of what is recorded; groups that are folded, or too large, are one. */
export function planOf(tree: Tree, folds: Folds, label: (path: string) => string): Plan {
  const nodes: GraphNode[] = [];
  const edges: GraphEdge[] = [];
  const draw = (path: string, before: readonly string[]): string[] => {
    const { row } = tree.nodes.get(path)!;
    const below = tree.children(path);
    const most = Math.max(below.length, row.size ?? 0);
    // There must be room for how many failed.
    const sub = below.length > 0 ? `${row.step_type} · ${most} of ${most}, ${most} failed` : `${row.step_type} · 12.3 s · $0.02`;
    nodes.push({ id: path, label: label(path), sub });
    for (const from of before) edges.push({ from, to: path });
    if (below.length === 0 || !opened(path, below.length)) return [path];
    if (!GROUPS.has(row.step_type)) return chain(below, [path]);
    return below.flatMap((child) => draw(child, [path]));
  };
  const opened = (path: string, members: number): boolean =>
    nodes.length + members <= MOST_NODES &&
    (folds.get(path) ?? (members <= MOST_BESIDE && isOpen(tree, path, folds)));
  const chain = (paths: readonly string[], before: readonly string[]): string[] => {
    let last = [...before];
    for (const path of paths) last = draw(path, last);
    return last;
  };
  let last: string[] = [];
  for (const path of tree.roots) {
    if (nodes.length >= MOST_NODES * 2) {
      const left = tree.roots.length - tree.roots.indexOf(path);
      nodes.push({ id: "", label: `${left} more steps`, sub: "see the tree" });
      for (const from of last) edges.push({ from, to: "" });
      break;
    }
    last = draw(path, last);
  }
  const heads = nodes.filter((one) => one.id !== "" && tree.children(one.id).length > 0);
  return { nodes, edges, frames: framesOf(heads.map(({ id }) => ({ head: id, nodes: new Set(nodes.map((one) => one.id).filter((one) => one === id || one.startsWith(`${id}/`))) }))) };
}

/** The frames that have more in them than their head, the largest first: so each comes after those around it. */
export function framesOf(frames: readonly Frame[]): readonly Frame[] {
  return frames.filter((one) => one.nodes.size > 1).toSorted((a, b) => b.nodes.size - a.nodes.size);
}

const NODE_HEIGHT = 44;

/** How wide a node's box is, in pixels. */
export function widthOf(node: GraphNode): number {
  const widest = Math.max(node.label.length * 7.4, node.sub.length * 6.6);
  return Math.round(Math.min(260, Math.max(104, widest + 52)));
}

/** How wide the label of an arrow is, in pixels. */
export function labelWidth(label: string): number {
  return Math.min(label.length, MOST_LABEL) * 6.2 + 8;
}

export const MOST_LABEL = 28;

/** Where each node and arrow lies, from the top down. */
export function place(plan: Plan): Placed {
  const graph = new Graph({ multigraph: true, compound: true });
  graph.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 30, marginx: 24, marginy: 24 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of plan.nodes) graph.setNode(node.id, { width: widthOf(node), height: NODE_HEIGHT });
  const frames = plan.frames ?? [];
  for (const frame of frames) {
    const cluster = clusterOf(frame.head);
    const around = graph.parent(frame.head);
    graph.setNode(cluster, {});
    if (around) graph.setParent(cluster, around);
    for (const id of frame.nodes) graph.setParent(id, cluster);
  }
  plan.edges.forEach((edge, place) => {
    const label = edge.label ?? "";
    graph.setEdge(edge.from, edge.to, { width: label ? labelWidth(label) : 0, height: label ? 16 : 0, labelpos: "c" }, String(place));
  });
  layout(graph);
  const size = graph.graph();
  return {
    width: size.width ?? 0,
    height: size.height ?? 0,
    nodes: plan.nodes.map((node) => areaOf(node.id, graph.node(node.id))),
    frames: frames.map((frame) => areaOf(frame.head, graph.node(clusterOf(frame.head)))),
    edges: plan.edges.map((edge, place) => {
      const laid = graph.edge({ v: edge.from, w: edge.to, name: String(place) });
      const points = ends(graph.node(edge.from), graph.node(edge.to), laid.points ?? []);
      const middle = points[Math.floor(points.length / 2)] ?? { x: 0, y: 0 };
      return {
        id: String(place),
        d: curve(points),
        label: edge.label ?? "",
        dashed: edge.dashed ?? false,
        at: edge.label && laid.x !== undefined && laid.y !== undefined ? { x: laid.x, y: laid.y } : middle,
      };
    }),
  };
}

const clusterOf = (head: string) => `\u0000${head}`;

function areaOf(id: string, at: Box & { readonly width: number }): Area {
  return { id, x: at.x - at.width / 2, y: at.y - at.height / 2, w: at.width, h: at.height };
}

type Box = Point & { readonly height: number };

/** The points of an arrow, which leaves a box at its foot and comes to the next from above. */
function ends(from: Box, to: Box, between: readonly Point[]): readonly Point[] {
  if (to.y <= from.y) return between; // back to the head of a loop
  const foot = { x: from.x, y: from.y + from.height / 2 };
  const top = { x: to.x, y: to.y - to.height / 2 };
  return [foot, ...between.slice(1, -1).filter((one) => one.y > foot.y && one.y < top.y), top];
}

/** A smooth line through points that go downward. */
function curve(points: readonly Point[]): string {
  const n = (value: number) => value.toFixed(1);
  const [first, ...rest] = points;
  if (!first) return "";
  let d = `M${n(first.x)} ${n(first.y)}`;
  let before = first;
  for (const point of rest) {
    const half = (before.y + point.y) / 2;
    d += `C${n(before.x)} ${n(half)} ${n(point.x)} ${n(half)} ${n(point.x)} ${n(point.y)}`;
    before = point;
  }
  return d;
}
