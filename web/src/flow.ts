// The graph of a workflow, and which of its nodes the steps of a run are. Pure.

import type { FlowGraph, FlowNode, NamePattern, StepState } from "./api";
import { framesOf, type Plan } from "./graph";
import type { Tree } from "./tree";

const CHILDREN = new Set(["subworkflow", "run_workflow"]);
const URGENT: readonly StepState[] = ["failed", "interrupted", "running", "waiting", "open"];

function regexOf(name: NamePattern): RegExp {
  const parts = name.map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`, "s");
}

interface Known {
  readonly node: FlowNode;
  readonly name: RegExp;
  readonly inside: readonly RegExp[];
  /** How many characters of its name are certain. */
  readonly known: number;
}

/** Finds the node that a path stands at; null if it stands at none. */
export class Matcher {
  private readonly known: readonly Known[];
  private readonly found = new Map<string, FlowNode | null>();

  constructor(graph: FlowGraph) {
    this.known = graph.nodes.flatMap((node) =>
      node.name === null
        ? []
        : [{ node, name: regexOf(node.name), inside: node.inside.map(regexOf), known: node.name.join("").length }],
    );
  }

  node(path: string): FlowNode | null {
    const before = this.found.get(path);
    if (before !== undefined) return before;
    const found = this.look(path);
    this.found.set(path, found);
    return found;
  }

  private look(path: string): FlowNode | null {
    const parts = path.split("/").map((part) => part.replace(/~\d+$/, "").replace(/%2F/g, "/"));
    const last = parts.pop()!;
    for (let end = path.lastIndexOf("/"); end > 0; end = path.lastIndexOf("/", end - 1)) {
      const above = this.node(path.slice(0, end));
      if (above && CHILDREN.has(above.kind)) return null; // a step of another workflow
    }
    let best: Known | null = null;
    for (const one of this.known) {
      if (!one.name.test(last) || !follow(one.inside, parts)) continue;
      if (best === null || one.inside.length > best.inside.length || (one.inside.length === best.inside.length && one.known > best.known)) best = one;
    }
    return best?.node ?? null;
  }
}

/** True if each pattern fits one of the parts, in order. */
function follow(inside: readonly RegExp[], parts: readonly string[]): boolean {
  let at = 0;
  for (const one of inside) {
    while (at < parts.length && !one.test(parts[at]!)) at++;
    if (at++ >= parts.length) return false;
  }
  return true;
}

export interface Standing {
  readonly state: StepState;
  /** A step to look at: one that is in this state. */
  readonly path: string;
  readonly ended: number;
  readonly all: number;
  /** What all of them took, and cost as far as it is known. */
  readonly took_ms: number | null;
  readonly cost_usd: number | null;
}

/** How the steps at each node stand: what needs a look comes before what went well. */
export function standings(tree: Tree, matcher: Matcher): Map<string, Standing> {
  const found = new Map<string, Standing>();
  const rank = (state: StepState) => {
    const place = URGENT.indexOf(state);
    return place < 0 ? URGENT.length : place;
  };
  for (const [path, { row }] of tree.nodes) {
    const node = matcher.node(path);
    if (!node) continue;
    const before = found.get(node.id);
    const live = row.state === "running" || row.state === "waiting" || row.state === "open" || row.state === "interrupted";
    const first = before === undefined || rank(row.state) < rank(before.state);
    found.set(node.id, {
      state: first ? row.state : before.state,
      path: first ? path : before.path,
      ended: (before?.ended ?? 0) + (live ? 0 : 1),
      all: (before?.all ?? 0) + 1,
      took_ms: sum(before?.took_ms, row.duration_ms),
      cost_usd: sum(before?.cost_usd, row.usage?.cost_usd),
    });
  }
  return found;
}

/** How many of the steps at each node failed. */
export function failures(tree: Tree, matcher: Matcher): Map<string, number> {
  const found = new Map<string, number>();
  for (const [path, { row }] of tree.nodes) {
    const node = row.state === "failed" ? matcher.node(path) : null;
    if (node) found.set(node.id, (found.get(node.id) ?? 0) + 1);
  }
  return found;
}

function sum(a: number | null | undefined, b: number | null | undefined): number | null {
  return a == null && b == null ? null : (a ?? 0) + (b ?? 0);
}

/** It as a plan to be laid out. */
export function planOfFlow(graph: FlowGraph): Plan {
  return {
    // There must be room for what is told of it later; a step of a group is there many times.
    nodes: graph.nodes.map((node) => ({
      id: node.id,
      label: node.label,
      sub: node.name === null ? node.kind : `${node.kind} · ${node.inside.length > 0 ? "1,000 of 1,000" : "12.3 s"} · $0.02`,
    })),
    edges: graph.edges,
    frames: framesOf(graph.nodes.flatMap((node) => (node.name === null ? [] : [{ head: node.id, nodes: new Set(graph.nodes.filter((one) => one === node || isInside(one, node)).map((one) => one.id)) }]))),
  };
}

/** True if a step stands in another one: in its body, or as a member of it. */
function isInside(one: FlowNode, around: FlowNode): boolean {
  const names = [...around.inside, around.name];
  return one.inside.length >= names.length && names.every((name, place) => JSON.stringify(name) === JSON.stringify(one.inside[place]));
}
