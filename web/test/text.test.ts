import { expect, test } from "vitest";
import { oneLine, pretty, Tail, visible } from "../src/text";
import { count, dollars, duration, relative, whole } from "../src/format";

test.each([
  ["\u001b[31mred\u001b[0m", "red"],
  ["\u001b]0;title\u0007x", "x"],
  ["\u001b]8;;http://x\u001b\\link\u001b]8;;\u001b\\", "link"],
  ["a\r\nb\tc", "a\nb\tc"],
  ["a\u0000b\u0007", "a\u2400b\u2407"],
  ["\u202egnp.exe", "⟨202E⟩gnp.exe"],
  ["<b>&amp;</b>", "<b>&amp;</b>"],
])("%j is shown as %j", (text, shown) => {
  expect(visible(text)).toBe(shown);
});

test("a line is cut, however long its text is", () => {
  expect(oneLine("a\n b".repeat(1_000_000), 20)).toHaveLength(20);
});

test("a tail keeps the end, and says how much it let go", () => {
  const tail = new Tail(10);
  for (let i = 0; i < 100; i++) tail.add(`${i} `);
  expect(tail.text).toBe("6 97 98 99 ".slice(-10));
  expect(tail.dropped).toBe(290 - 10);
});

test("JSON is indented, and text stays text", () => {
  expect(pretty({ a: 1 })).toBe('{\n  "a": 1\n}');
  expect(pretty("a\nb")).toBe("a\nb");
});

test.each([
  [0.2, "0 ms"], [840, "840 ms"], [12_400, "12.4 s"], [59_960, "1 m 00 s"], [187_000, "3 m 07 s"],
  [7_500_000, "2 h 05 m"], [360_000_000, "4 d 4 h"], [null, ""],
])("%s ms is %s", (ms, said) => {
  expect(duration(ms)).toBe(said);
});

test("numbers are told as people read them", () => {
  expect([count(950), count(12_400), count(3_000_000)]).toEqual(["950", "12.4 k", "3 M"]);
  expect([dollars(0.0123), dollars(4), dollars(null)]).toEqual(["$0.0123", "$4.00", ""]);
  expect([relative(100, 140), relative(7300, 100), relative(100, 101)]).toEqual(["40 s ago", "in 2 h", "now"]);
  expect(whole(10002)).toBe("10,002");
});
