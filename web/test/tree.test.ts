import { describe, expect, test } from "vitest";
import { FOLDED_FROM, reasons, rowsOf, Tree } from "../src/tree";
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

  test("a step is called by what its path has beyond the one around it", () => {
    const tree = new Tree([step("verify"), step("verify/1/tests"), step("a%2Fb"), step("a%2Fb/50%")]);
    expect(rowsOf(tree, new Map()).map((row) => row.name)).toEqual(["verify", "1/tests", "a/b", "50%"]);
  });

  test("those that failed are counted by why", () => {
    const tree = new Tree([
      step("each", "failed", { error_type: "x.Y" }),
      ...["a.TimeoutError", "TimeoutError", "b.Gone"].map((error_type, i) => step(`each/${i}`, "failed", { error_type })),
    ]);
    expect(reasons(tree)).toEqual([["TimeoutError", 2], ["Gone", 1]]);
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

  test("it is the same whatever is told first", () => {
    const rows = [
      step("a", "succeeded", { started_at: 1 }),
      step("each", "running", { started_at: 2 }),
      step("each/0", "running", { started_at: 3 }),
      step("each/0/do", "running", { started_at: 4 }),
      step("each/0~2/do", "running", { started_at: 5 }),
      step("each/1", "running", { started_at: 6 }),
      step("each/1/do", "running", { started_at: 7 }),
      step("b", "running", { started_at: 8 }),
    ];
    const told = (order: readonly number[]) => paths(new Tree(order.map((place) => rows[place]!)));
    const expected = told([0, 1, 2, 3, 4, 5, 6, 7]);
    expect(expected).toEqual(rows.map((row) => row.path));
    let seed = 7;
    for (let i = 0; i < 200; i++) {
      const order = rows.map((_, place) => place);
      for (let n = order.length - 1; n > 0; n--) {
        seed = (seed * 16807) % 2147483647;
        const other = seed % (n + 1);
        [order[n], order[other]] = [order[other]!, order[n]!];
      }
      expect(told(order)).toEqual(expected);
    }
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
