import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { LogLine } from "../src/api";
import { partOf } from "../src/frozen";
import { LogStore, PAGE } from "../src/log_store";
import { hashOf, type Place, placeOf } from "../src/router";
import type { PartAsked, Source } from "../src/source";

const line = (seq: number, more: Partial<LogLine> = {}): LogLine => ({ seq, at: seq, type: "StepStarted", path: `s${seq}`, level: "info", text: "began", ...more });
const many = (count: number) => Array.from({ length: count }, (_, place) => line(place + 1, place % 10 === 9 ? { level: "error", text: "failed: no" } : {}));

/** A source with these lines; it keeps what it was asked for. */
class Told {
  asked: PartAsked[] = [];
  constructor(public lines: LogLine[]) {}
  log = (_: string, sought: { words: string; only: "" | "errors" }, part: PartAsked) => {
    this.asked.push(part);
    return Promise.resolve(partOf(this.lines, sought, part));
  };
}

const storeOf = (told: Told) => new LogStore(told as unknown as Source, "r");

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("a part that is seen is loaded once, and whoever scrolls past many parts loads the last", async () => {
  const told = new Told(many(100_000));
  const store = storeOf(told);
  await store.seek({ words: "", only: "" }, null);
  for (let place = 0; place < 100_000; place += PAGE) store.line(place);
  await vi.runAllTimersAsync();
  expect(told.asked.map((part) => part.start)).toEqual([0, 99_400, 99_600, 99_800]);
  expect(store.line(99_999)?.seq).toBe(100_000);
  await vi.runAllTimersAsync();
  expect(told.asked).toHaveLength(4);
});

test("of a long record a bounded part is kept", async () => {
  const told = new Told(many(10_000));
  const store = storeOf(told);
  await store.seek({ words: "", only: "" }, null);
  for (let place = 0; place < 10_000; place += PAGE) {
    store.line(place);
    await vi.runAllTimersAsync();
  }
  let known = 0;
  for (let place = 0; place < 10_000; place += PAGE) known += store.line(place) === null ? 0 : 1;
  expect(known).toBeLessThan(30);
});

test("what comes is found at the end, however often it is asked for", async () => {
  const told = new Told(many(PAGE));
  const store = storeOf(told);
  await store.seek({ words: "", only: "" }, null);
  told.lines = many(PAGE + 5);
  for (let i = 0; i < 50; i++) store.grow();
  await vi.runAllTimersAsync();
  expect(told.asked).toHaveLength(2);
  expect(store.total).toBe(PAGE + 5);
  expect(store.line(PAGE + 4)?.seq).toBe(PAGE + 5);
});

test("an answer to what is not looked for any more changes nothing", async () => {
  const told = new Told(many(50));
  const store = storeOf(told);
  const late = store.seek({ words: "", only: "" }, null);
  const place = await store.seek({ words: "", only: "errors" }, 15);
  await late;
  expect([store.total, place]).toEqual([5, 1]);
  store.line(1);
  await vi.runAllTimersAsync();
  expect(store.line(1)?.seq).toBe(20);
});

test.each([
  [{ words: "FAILED s20", only: "" }, {}, [20]],
  [{ words: "", only: "errors" }, { line: 21, limit: 1 }, [30]],
  [{ words: "", only: "errors" }, { line: 99, limit: 1 }, [50]],
  [{ words: "nothing", only: "" }, { line: 1 }, []],
  [{ words: "", only: "" }, { limit: 2 }, [49, 50]],
] as const)("a report finds %j at %j", (sought, part, seqs) => {
  expect(partOf(many(50), sought, { limit: 200, ...part }).lines.map((one) => one.seq)).toEqual(seqs);
});

test.each<Place>([
  { page: "run", run: "r", view: "log", step: null, log: { words: "a b", only: "errors", line: 12 } },
  { page: "run", run: "r", view: "log", step: "a/b", log: { words: "", only: "", line: null } },
])("the address of $log leads back to it", (where) => {
  expect(placeOf(hashOf(where))).toEqual(where);
});
