import { expect, test } from "vitest";
import type { RunDetail, StepDetail } from "../src/api";
import { RunStore } from "../src/run_store";
import type { RecordedEvent, Source, Watcher } from "../src/source";
import { step } from "./steps";

function detail(seq: number, ...steps: ReturnType<typeof step>[]): RunDetail {
  return {
    run: {
      run_id: "r", workflow: "w", state: "running", started_at: 0, updated_at: 0, duration_ms: null, events: seq,
      labels: {}, waits_for: [], at_work: [], cost_usd: null, tokens: null, launches: 0, error: null, forked_from: null, holder: null,
    },
    seq, inputs: {}, value: null, error: null, failed_step: null, gates: [], signals: [], needs: [], acts: [], drives: [], work: [], steps,
  };
}

/** A source that a test tells what to say; it keeps who watches from where. */
class Told {
  readonly frozenAt = null;
  readonly readOnly = false;
  after: number[] = [];
  asked: (string | null)[] = [];
  withSteps: boolean[] = [];
  watcher: Watcher | null = null;
  constructor(public now: RunDetail) {}
  run = (_: string, steps: boolean) => {
    this.withSteps.push(steps);
    return Promise.resolve(this.now);
  };
  step = () => Promise.resolve(null as unknown as StepDetail);
  watch = (_: string, after: number, step: string | null, watcher: Watcher) => {
    this.after.push(after);
    this.asked.push(step);
    this.watcher = watcher;
    return () => {};
  };
}

async function opened(told: Told): Promise<RunStore> {
  const store = new RunStore(told as unknown as Source, "r");
  await store.open();
  return store;
}

const event = (seq: number, more: Partial<RecordedEvent> = {}): RecordedEvent => ({ type: "StepCompleted", seq, at: 0, ...more });

test("it listens from the last event that it has", async () => {
  const told = new Told(detail(7, step("a")));
  await opened(told);
  expect(told.after).toEqual([7]);
});

test("an event that is told twice, or was in what was loaded, changes nothing", async () => {
  const told = new Told(detail(7, step("a", "succeeded")));
  const store = await opened(told);
  told.watcher!.record(event(7, { step: step("a", "running") }));
  told.watcher!.record(event(8, { step: step("b", "running") }));
  told.watcher!.record(event(8, { step: step("b", "failed") }));
  expect(store.tree.get("a")?.state).toBe("succeeded");
  expect(store.tree.get("b")?.state).toBe("running");
});

test("an event that comes while the run is loaded again is not lost", async () => {
  const told = new Told(detail(7, step("a", "running")));
  const store = await opened(told);
  const loading = store.load();
  told.watcher!.record(event(8, { step: step("a", "succeeded") }));
  await loading;
  expect(store.tree.get("a")?.state).toBe("succeeded");
  told.watcher!.record(event(8, { step: step("a", "failed") }));
  expect(store.tree.get("a")?.state).toBe("succeeded");
});

test("when the run is in another state it is loaded again", async () => {
  const told = new Told(detail(7, step("a", "running")));
  const store = await opened(told);
  told.now = detail(7, step("a", "interrupted"));
  told.watcher!.run({ ...told.now.run, state: "dead" });
  await new Promise((done) => setTimeout(done, 200));
  expect(store.tree.get("a")?.state).toBe("interrupted");
});

test("after a reset it loads the run, and listens from there", async () => {
  const told = new Told(detail(7, step("a")));
  const store = await opened(told);
  told.now = detail(20, step("b"));
  told.watcher!.reset();
  await new Promise((done) => setTimeout(done, 5));
  expect(told.after).toEqual([7, 20]);
  expect([...store.tree.nodes.keys()]).toEqual(["b"]);
});

test("its steps are loaded once: later what comes on the line keeps them up", async () => {
  const told = new Told(detail(7, step("a", "running")));
  const store = await opened(told);
  told.watcher!.record(event(8, { step: step("a", "succeeded") }));
  told.now = { ...detail(8), error: "no" };
  await store.load();
  expect(told.withSteps).toEqual([true, false]);
  expect(store.detail?.error).toBe("no");
  expect(store.tree.get("a")?.state).toBe("succeeded");
});

test("what was on its way when a reset came does not count", async () => {
  const told = new Told(detail(7, step("a")));
  const store = await opened(told);
  const old = store.load();
  told.now = detail(3, step("b"));
  told.watcher!.reset();
  await old;
  await new Promise((done) => setTimeout(done, 5));
  expect([...store.tree.nodes.keys()]).toEqual(["b"]);
  expect(told.after).toEqual([7, 3]);
});

test("of a stream of 10 MB the end is kept, and only of the step that is looked at", async () => {
  const told = new Told(detail(1, step("a", "running")));
  const store = await opened(told);
  store.look("a");
  for (let i = 0; i < 10_240; i++) {
    told.watcher!.progress({ path: "a", kind: "message", text: "x".repeat(1023) + "\n", start: i * 1024, end: (i + 1) * 1024 });
    told.watcher!.progress({ path: "b", kind: "message", text: "y", start: i, end: i + 1 });
  }
  const kept = store.streams.get("message")!;
  expect(kept.text.length).toBe(256 * 1024);
  expect(kept.text).not.toContain("y");
  store.look("b");
  expect(store.streams.size).toBe(0);
});

test("what was loaded of a stream is not shown twice, nor is any of it lost", async () => {
  const told = new Told(detail(1, step("a", "running")));
  const store = await opened(told);
  store.look("a", { stdout: 6 }, 1);
  const piece = (text: string, start: number, end: number) => told.watcher!.progress({ path: "a", kind: "stdout", text, start, end });
  piece("abc", 0, 3);
  piece("défg", 3, 8); // its first three bytes were loaded
  piece("hi", 8, 10);
  expect(store.streams.get("stdout")?.text).toBe("fghi");
  const before = store.touched;
  told.watcher!.progress({ path: "a", kind: "message", text: "", start: 0, end: 0, turn: 2 });
  expect(store.touched).toBe(before + 1);
});

test("a step whose text went on while the line was lost is loaded again", async () => {
  const told = new Told(detail(1, step("a", "running")));
  const store = await opened(told);
  store.look("a", { stdout: 6 }, 1, true);
  expect(told.asked).toEqual([null, "a"]);
  const before = store.touched;
  told.watcher!.progress({ path: "a", kind: "stdout", text: "", start: 6, end: 6 });
  expect(store.touched).toBe(before);
  told.watcher!.progress({ path: "a", kind: "stdout", text: "", start: 900, end: 900 });
  expect(store.touched).toBe(before + 1);
});

test("what came too fast to be told leaves a mark", async () => {
  const told = new Told(detail(1, step("a", "running")));
  const store = await opened(told);
  store.look("a", { stdout: 6 }, 1, true);
  told.watcher!.progress({ path: "a", kind: "stdout", text: "end", start: 1030, end: 1033 });
  expect(store.streams.get("stdout")?.text).toMatch(/1.0 KB came too fast to be shown …\nend$/);
});

test("it says when the line is lost, and when it is there again", async () => {
  const told = new Told(detail(1));
  const store = await opened(told);
  told.watcher!.line(true);
  expect(store.online).toBe(true);
  told.watcher!.line(false);
  expect(store.online).toBe(false);
});
