import { expect, test } from "vitest";
import type { Queue, RunState } from "../src/api";
import { standing, takesEdits } from "../src/queue";

function queue(more: Partial<Queue> = {}): Queue {
  return {
    path: "w", queued: [{ id: "a", priority: 0 }], queued_count: 1, running: [], running_count: 0, done: 0, failed: 0,
    refused: [], refused_count: 0, why_stopped: null, over: false, unread: [], ...more,
  };
}

test.each<[RunState, Partial<Queue>, boolean]>([
  ["running", {}, true],
  ["suspended", {}, true],
  ["dead", {}, true],
  ["running", { why_stopped: "enough" }, false],
  ["running", { over: true }, false],
  ["succeeded", {}, false],
  ["failed", {}, false],
  ["cancelled", {}, false],
])("of a run that is %s, with %j, the queue may be changed: %s", (state, more, may) => {
  expect(takesEdits(queue(more), state)).toBe(may);
});

test("what a queue holds is said in its counts, and what has not begun is left once the step is over", () => {
  const more = { queued_count: 9000, running_count: 2, done: 3, failed: 1, refused: ["x"], refused_count: 4 };
  expect(standing(queue(more))).toBe("9000 queued · 2 at work · 3 done · 1 failed · 4 refused");
  expect(standing(queue({ ...more, over: true }))).toBe("9000 left · 2 at work · 3 done · 1 failed · 4 refused");
});
