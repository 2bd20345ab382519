import { expect, test } from "vitest";
import { failures, Matcher, planOfFlow, standings } from "../src/flow";
import { place, planOf } from "../src/graph";
import { endedText } from "../src/step_line";
import { hashOf, placeOf, type Place } from "../src/router";
import { barsOf, idle, midnight, moved, ticksOf, zoomed } from "../src/timeline";
import { Tree } from "../src/tree";
import { step } from "./steps";

test.each<Place>([
  { page: "list", query: "a b&c", state: "failed" },
  { page: "run", run: "ship/1 ü", view: "graph", step: "review/a%2Fb/look" },
  { page: "run", run: "x", view: "tree", step: null },
  { page: "diff", a: "a#1", b: "b?2" },
])("the address of $page leads back to it", (where) => {
  expect(placeOf(hashOf(where))).toEqual(where);
});

test.each(["", "#", "#/nowhere/x", "#/runs", "#/%E0%A4%A"])("%j is the list", (hash) => {
  expect(placeOf(hash).page).toBe("list");
});

const whole = { from: 100, to: 110 };

test("a bar lies where its step was, and one that has no end goes on until now", () => {
  expect(barsOf(step("a", "succeeded", { started_at: 102, ended_at: 104 }), whole, 110)).toEqual([{ left: 20, width: 20, state: "succeeded" }]);
  expect(barsOf(step("a", "running", { started_at: 105, ended_at: null }), whole, 108)).toEqual([{ left: 50, width: 30, state: "running" }]);
  expect(barsOf(step("a", "open", { started_at: null }), whole, 110)).toEqual([]);
});

test("a step that was at work several times has a bar for each, as far as it is in sight", () => {
  const spans = [[101, 102, "failed"], [104, 106, "interrupted"], [109, null, ""]] as const;
  const tried = step("a", "running", { started_at: 101, spans });
  expect(barsOf(tried, whole, 110).map((bar) => [bar.left, bar.state])).toEqual([[10, "failed"], [40, "interrupted"], [90, "running"]]);
  expect(barsOf(tried, { from: 105, to: 110 }, 110).map((bar) => [bar.left, bar.width])).toEqual([[0, 20], [80, 20]]);
});

test("to zoom keeps what is under the pointer where it is, and never leaves the run", () => {
  const near = zoomed(whole, 104, 0.5, whole);
  expect(near).toEqual({ from: 102, to: 107 });
  expect(zoomed(near, 102, 0.5, whole).from).toBe(102);
  expect(zoomed(near, 104, 100, whole)).toEqual(whole);
  expect(moved(near, -5, whole)).toEqual({ from: 100, to: 105 });
  expect(moved(near, 0.2, whole)).toEqual({ from: 103, to: 108 });
});

test("where nobody drove the run is told", () => {
  expect(idle([[100, 102], [105, 107], [109, null]], whole)).toEqual([{ from: 102, to: 105 }, { from: 107, to: 109 }]);
  expect(idle([[100, 102]], whole)).toEqual([{ from: 102, to: 110 }]);
});

test.each([0.004, 7, 3600, 600_000, 2_000_000])("an axis of %s s has a few round ticks", (long) => {
  const from = 1_795_030_881.25;
  const ticks = ticksOf({ from, to: from + long }, 6, midnight(from));
  expect(ticks.length).toBeGreaterThan(1);
  expect(ticks.length).toBeLessThanOrEqual(7);
  expect(ticks.every((tick) => tick.left >= 0 && tick.left <= 97)).toBe(true);
});

test("what ran beside one another is beside one another in the graph, and what followed is below", () => {
  const tree = new Tree([
    step("plan"), step("checks", "succeeded", { step_type: "parallel" }), step("checks/lint"), step("checks/types"), step("merge"),
  ]);
  const plan = planOf(tree, new Map(), (path) => path);
  expect(plan.edges.map((edge) => `${edge.from}>${edge.to}`)).toEqual([
    "plan>checks", "checks>checks/lint", "checks>checks/types", "checks/lint>merge", "checks/types>merge",
  ]);
  const at = new Map(place(plan).nodes.map((node) => [node.id, node]));
  expect(at.get("checks/lint")!.y).toBe(at.get("checks/types")!.y);
  expect(at.get("merge")!.y).toBeGreaterThan(at.get("checks/lint")!.y);
});

test("a group of 10,000 members is one node, and a body of as many steps ends in one that says so", () => {
  const members = Array.from({ length: 10_000 }, (_, i) => step(`each/${i}`));
  const group = planOf(new Tree([step("each", "running", { step_type: "for_each" }), ...members]), new Map(), String);
  expect(group.nodes).toHaveLength(1);
  const body = planOf(new Tree(Array.from({ length: 10_000 }, (_, i) => step(`s${i}`))), new Map(), String);
  expect(body.nodes.length).toBeLessThan(300);
  expect(body.nodes.at(-1)!.label).toMatch(/more steps/);
});

const flow = {
  nodes: [
    { id: "n0", label: "start", kind: "", name: null, inside: [] },
    { id: "nx", label: "{anything}", kind: "call", name: ["", ""], inside: [] },
    { id: "n1", label: "check", kind: "call", name: ["check"], inside: [] },
    { id: "n2", label: "each", kind: "for_each", name: ["each"], inside: [] },
    { id: "n3", label: "check", kind: "call", name: ["check"], inside: [["each"]] },
    { id: "n4", label: "see {x}", kind: "call", name: ["see ", ""], inside: [] },
    { id: "n5", label: "child", kind: "subworkflow", name: ["child"], inside: [] },
  ],
  edges: [],
};

test.each([
  ["check", "n1"],
  ["each/7/check", "n3"],
  ["each", "n2"],
  ["see a%2Fb", "n4"],
  ["verify/1/check", "n1"],
  ["each~2/7/check", "n3"],
  ["child/check", null],
  ["other", "nx"],
])("the step %s stands at the node %s of its workflow", (path, id) => {
  expect(new Matcher(flow).node(path)?.id ?? null).toBe(id);
});

test("a node is as the one of its steps that most needs a look", () => {
  const tree = new Tree([step("each", "running"), step("each/0/check"), step("each/1/check", "failed"), step("each/2/check", "running")]);
  expect(standings(tree, new Matcher(flow)).get("n3")).toEqual({ state: "failed", path: "each/1/check", ended: 2, all: 3, took_ms: 3000, cost_usd: null });
  expect(failures(tree, new Matcher(flow)).get("n3")).toBe(1);
});

test("a loop is laid out, and its way back is drawn", () => {
  const nodes = ["a", "b"].map((id) => ({ id, label: id, sub: "" }));
  const placed = place({ nodes, edges: [{ from: "a", to: "b", label: "each" }, { from: "b", to: "a", label: "again", dashed: true }] });
  expect(placed.edges.map((edge) => edge.d.startsWith("M"))).toEqual([true, true]);
});

test.each(["for_each", "work"])("the members of %s stand side by side in what a run did", (step_type) => {
  const tree = new Tree([step("w", "running", { step_type }), step("w/a"), step("w/b")]);
  const { edges } = planOf(tree, new Map([["w", true]]), String);
  expect(edges.map((one) => [one.from, one.to])).toEqual([["w", "w/a"], ["w", "w/b"]]);
});

test("a group is drawn around its members, and a group in it inside", () => {
  const step = (id: string, inside: string[][], name: string[]) => ({ id, label: id, kind: "for_each", name, inside });
  const plan = planOfFlow({
    nodes: [
      step("all", [], ["all"]),
      step("one", [["all"]], ["one"]),
      step("more", [["all"]], ["more"]),
      step("deep", [["all"], ["more"]], ["deep"]),
      step("after", [], ["after"]),
    ],
    edges: ["all one", "one more", "more deep", "deep after"].map((ends) => ({ from: ends.split(" ")[0]!, to: ends.split(" ")[1]! })),
  } as unknown as Parameters<typeof planOfFlow>[0]);
  const placed = place(plan);
  const [outer, inner] = placed.frames;
  const holds = (frame: typeof outer, id: string) => {
    const node = placed.nodes.find((one) => one.id === id)!;
    return node.x >= frame!.x && node.y >= frame!.y && node.x + node.w <= frame!.x + frame!.w && node.y + node.h <= frame!.y + frame!.h;
  };
  const ids = plan.nodes.map((one) => one.id);
  expect(placed.frames.map((one) => one.id)).toEqual(["all", "more"]);
  expect(ids.filter((id) => holds(outer, id))).toEqual(["all", "one", "more", "deep"]);
  expect(ids.filter((id) => holds(inner, id))).toEqual(["more", "deep"]);
});

test("how many failed stands beside how many ended", () => {
  expect(endedText(12, 12, 3)).toBe("12 of 12, 3 failed");
  expect(endedText(12, 12, 0)).toBe("12 of 12");
});
