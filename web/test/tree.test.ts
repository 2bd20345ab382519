import { describe, expect, test } from "vitest";
import { FOLDED_FROM, rowsOf, Tree } from "../src/tree";
import { keyMoves } from "../src/tree_keys";
import { step } from "./steps";

const some = () =>
  new Tree([
    step("plan"),
    step("review", "running", { step_type: "for_each" }),
    step("review/a", "succeeded", { step_type: "member" }),
    step("review/a/look"),
    step("review/b", "failed", { step_type: "member", error: "it broke" }),
    step("review/b/look", "failed", { error: "it broke" }),
    step("merge", "waiting"),
  ]);

const paths = (tree: Tree, ...rest: [ReadonlyMap<string, boolean>?, Parameters<typeof rowsOf>[2]?]) =>
  rowsOf(tree, rest[0] ?? new Map(), rest[1]).map((row) => row.path);

describe("a tree of steps", () => {
  test("a member that ended well begins folded, one that failed open", () => {
    expect(paths(some())).toEqual(["plan", "review", "review/a", "review/b", "review/b/look", "merge"]);
  });

  test("what a person unfolded stays unfolded", () => {
    expect(paths(some(), new Map([["review/a", true]]))).toContain("review/a/look");
  });

  test("a group of many members begins folded", () => {
    const members = Array.from({ length: FOLDED_FROM + 1 }, (_, i) => step(`each/${i}`));
    expect(paths(new Tree([step("each"), ...members]))).toEqual(["each"]);
  });

  test("a search leaves what fits, and all around it", () => {
    const found = paths(some(), undefined, { text: "b LOOK", states: new Set() });
    expect(found).toEqual(["review", "review/b", "review/b/look"]);
  });

  test("a search reads errors, and a filter states", () => {
    expect(paths(some(), undefined, { text: "broke", states: new Set() })).toContain("review/b");
    expect(paths(some(), undefined, { text: "", states: new Set(["waiting"]) })).toEqual(["merge"]);
  });

  test("another attempt of a step stands in the step itself", () => {
    const tree = new Tree([step("pay", "running"), step("pay/card", "failed"), step("pay~2/card", "running")]);
    expect(tree.children("pay")).toEqual(["pay/card", "pay~2/card"]);
  });

  test("a step that is told again takes the place of the one before", () => {
    const tree = some();
    tree.put(step("merge", "succeeded"));
    expect(tree.roots).toEqual(["plan", "review", "merge"]);
    expect(tree.get("merge")?.state).toBe("succeeded");
    expect(tree.tally(null)).toEqual({ succeeded: 2, running: 1 });
  });

  test("only steps that have none below them are counted as done", () => {
    expect(some().leaves()).toEqual({ succeeded: 2, failed: 1, waiting: 1 });
  });
});

describe("the keys of the tree", () => {
  const rows = rowsOf(some(), new Map());

  test.each([
    ["j", 0, { to: 1 }],
    ["ArrowUp", 0, { to: 0 }],
    ["End", 0, { to: 5 }],
    ["l", 2, { fold: { path: "review/a", open: true } }],
    ["l", 1, { to: 2 }],
    ["h", 1, { fold: { path: "review", open: false } }],
    ["h", 4, { to: 3 }],
    ["h", 0, null],
    ["Enter", 3, { enter: true }],
    ["x", 3, null],
  ] as const)("%s at row %i", (key, place, move) => {
    expect(keyMoves(key, rows, place)).toEqual(move);
  });
});
