import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { keepLine } from "../src/server";

/** What a browser has for a line: a test says what comes on it. */
class Line extends EventTarget {
  static readonly CLOSED = 2;
  static all: Line[] = [];
  readyState = 1;
  constructor(readonly url: string) {
    super();
    Line.all.push(this);
  }
  close() {
    this.readyState = 2;
  }
  says(type: string, data?: unknown, lastEventId = "") {
    this.dispatchEvent(Object.assign(new Event(type), { data: data === undefined ? "" : JSON.stringify(data), lastEventId }));
  }
  breaks(forGood: boolean) {
    this.readyState = forGood ? 2 : 0;
    this.dispatchEvent(new Event("error"));
  }
}

let heard: unknown[];
let open: boolean[];
let tab: EventTarget & { hidden: boolean };

function hide(hidden: boolean): void {
  tab.hidden = hidden;
  tab.dispatchEvent(new Event("visibilitychange"));
}

const keep = () =>
  keepLine((after) => `events?after=${after}`, 4, (is) => open.push(is), { record: (data) => heard.push(data) });

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("EventSource", Line);
  tab = Object.assign(new EventTarget(), { hidden: false });
  vi.stubGlobal("document", tab);
  Line.all = [];
  heard = [];
  open = [];
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("a line that the browser opens again by itself is left to it", () => {
  keep();
  Line.all[0]!.says("open");
  Line.all[0]!.breaks(false);
  vi.advanceTimersByTime(60_000);
  expect(Line.all).toHaveLength(1);
  expect(open).toEqual([true, false]);
});

test("a line that the browser gave up is opened again, from the last event on", () => {
  keep();
  Line.all[0]!.says("record", { seq: 9 }, "9");
  Line.all[0]!.breaks(true);
  vi.advanceTimersByTime(3000);
  expect(Line.all.map((one) => one.url)).toEqual(["events?after=4", "events?after=9"]);
  Line.all[1]!.says("record", { seq: 10 }, "10");
  expect(heard).toEqual([{ seq: 9 }, { seq: 10 }]);
});

test("a line on which the beat stops is told as lost, and another one is opened", () => {
  keep();
  Line.all[0]!.says("open");
  for (let i = 0; i < 5; i++) {
    Line.all[0]!.says("beat");
    vi.advanceTimersByTime(10_000);
  }
  expect(Line.all).toHaveLength(1);
  vi.advanceTimersByTime(40_000);
  expect(Line.all).toHaveLength(2);
  expect(Line.all[0]!.readyState).toBe(2);
  expect(open).toEqual([true, false]);
});

test("a line that was closed stays closed", () => {
  const close = keep();
  Line.all[0]!.says("beat");
  Line.all[0]!.breaks(true);
  close();
  vi.advanceTimersByTime(120_000);
  expect(Line.all).toHaveLength(1);
});

test("a tab that nobody sees has no line after a while, and goes on where it was when it is seen", () => {
  const close = keep();
  Line.all[0]!.says("record", { seq: 9 }, "9");
  hide(true);
  vi.advanceTimersByTime(10_000);
  hide(false);
  vi.advanceTimersByTime(60_000);
  expect(Line.all).toHaveLength(1);
  hide(true);
  vi.advanceTimersByTime(30_000);
  expect(Line.all[0]!.readyState).toBe(2);
  hide(false);
  expect(Line.all[1]!.url).toBe("events?after=9");
  close();
  hide(true);
  hide(false);
  expect(Line.all).toHaveLength(2);
});
