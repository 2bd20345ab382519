import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Queue, RunDetail, StepDetail } from "../src/api";
import { RunStore } from "../src/run_store";
import type { RecordedEvent, Source, Watcher } from "../src/source";
import { step } from "./steps";

function detail(seq: number, ...steps: ReturnType<typeof step>[]): RunDetail {
  return {
    run: {
      run_id: "r", workflow: "w", state: "running", started_at: 0, updated_at: 0, duration_ms: null, events: seq,
      labels: {}, waits_for: [], at_work: [], cost_usd: null, tokens: null, launches: 0, unread: null, error: null, forked_from: null, holder: null,
    },
    seq, inputs: {}, value: null, error: null, failed_step: null, gates: [], signals: [], needs: [], acts: [], drives: [], work: [], steps,
  };
}

/** A source that a test tells what to say; it keeps who watches from where. */
class Told {
  readonly frozenAt = null;
  readonly readOnly = false;
  after: number[] = [];
  /** A load waits for it. */
  slow: Promise<void> = Promise.resolve();
  asked: (string | null)[] = [];
  withSteps: boolean[] = [];
  watcher: Watcher | null = null;
  constructor(public now: RunDetail) {}
  run = (_: string, steps: boolean) => {
    this.withSteps.push(steps);
    const { now } = this;
    return this.slow.then(() => now);
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

function queue(more: Partial<Queue> = {}): Queue {
  return {
    path: "w", queued: [], queued_count: 0, running: [], running_count: 0, done: 0, failed: 0,
    refused: [], refused_count: 0, why_stopped: null, over: false, unread: [], ...more,
  };
}

const working = (seq: number, more: Partial<Queue> = {}, ...steps: ReturnType<typeof step>[]): RunDetail => ({ ...detail(seq, ...steps), work: [queue(more)] });

describe("the queue of a `work` step", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());
  const rest = (ms: number) => vi.advanceTimersByTimeAsync(ms);

  test.each([["w"], ["w/a"], ["w~2/a"]])("what happens at %s changes the queue that is shown", async (path) => {
    const told = new Told(working(7, { queued_count: 2 }, step("w", "running")));
    const store = await opened(told);
    told.now = working(8, { queued_count: 1, running_count: 1 });
    told.watcher!.record(event(8, { path }));
    await rest(200);
    expect(store.detail?.work[0]).toEqual(told.now.work[0]);
  });

  test.each([["w/a/look"], ["v/a"]])("what happens at %s has the queue not loaded again", async (path) => {
    const told = new Told(working(7, {}, step("w", "running")));
    await opened(told);
    told.watcher!.record(event(8, { path }));
    await rest(200);
    expect(told.withSteps).toEqual([true]);
  });

  test("a task that brings others makes the row of its work larger", async () => {
    const told = new Told(working(7, { running_count: 1 }, step("w", "running", { size: 1 })));
    const store = await opened(told);
    told.now = working(8, { queued_count: 3, running_count: 1, done: 1, failed: 1 });
    told.watcher!.record(event(8, { path: "w/a" }));
    await rest(200);
    expect(store.tree.get("w")?.size).toBe(6);
  });

  test("a change that comes while the run is loaded is loaded after it", async () => {
    const told = new Told(working(7, { queued_count: 2 }, step("w", "running")));
    const store = await opened(told);
    let arrive = () => {};
    told.slow = new Promise((done) => (arrive = done));
    const early = store.load();
    told.now = working(8, { done: 2 });
    told.watcher!.record(event(8, { path: "w/a" }));
    await rest(200);
    arrive();
    await early;
    expect(store.detail?.work[0]?.done).toBe(0);
    await rest(5);
    expect(store.detail?.work[0]?.done).toBe(2);
  });

  test("a queue of many tasks is loaded less often", async () => {
    const told = new Told(working(7, { queued_count: 10_000 }, step("w", "running")));
    const store = await opened(told);
    for (let seq = 8; seq < 12; seq++) {
      told.watcher!.record(event(seq, { path: "w/a" }));
      await rest(160);
    }
    expect(told.withSteps).toEqual([true]);
    store.close();
  });
});
