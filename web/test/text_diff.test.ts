import { expect, test } from "vitest";
import { diffOf, nearChanges } from "../src/text_diff";

const said = (a: string, b: string) => diffOf(a, b).map((line) => line.change + line.text);

test.each([
  ["a\nb\nc", "a\nb\nc", [" a", " b", " c"]],
  ["a\nb\nc", "a\nx\nc", [" a", "-b", "+x", " c"]],
  ["a\nc", "a\nb\nc", [" a", "+b", " c"]],
  ["a\na", "a", [" a", "-a"]],
  ["", "x", ["-", "+x"]],
])("%j and %j", (a, b, lines) => {
  expect(said(a, b)).toEqual(lines);
});

test("both texts are in it, whole", () => {
  for (let seed = 1; seed < 60; seed++) {
    const text = (n: number) => Array.from({ length: (seed * n) % 9 }, (_, i) => "abc"[(seed * 7 + i * n) % 3]).join("\n");
    const [a, b] = [text(5), text(11)];
    const lines = diffOf(a, b);
    expect(lines.filter((line) => line.change !== "+").map((line) => line.text).join("\n")).toBe(a);
    expect(lines.filter((line) => line.change !== "-").map((line) => line.text).join("\n")).toBe(b);
  }
});

test("texts that are too long are told one after the other, and equal parts at their ends once", () => {
  const long = (name: string) => Array.from({ length: 5000 }, (_, i) => `${name}${i}`).join("\n");
  const lines = diffOf(`head\n${long("a")}\ntail`, `head\n${long("b")}\ntail`);
  expect(lines).toHaveLength(10_002);
  expect([lines[0]!.change, lines[1]!.change, lines.at(-1)!.text]).toEqual([" ", "-", "tail"]);
});

test("equal lines that are far from a change are left out", () => {
  const numbers = Array.from({ length: 30 }, (_, i) => String(i));
  const found = nearChanges(diffOf(numbers.join("\n"), numbers.map((n) => (n === "15" ? "x" : n)).join("\n")));
  expect(found.map((line) => line?.text)).toEqual([undefined, "12", "13", "14", "15", "x", "16", "17", "18", undefined]);
});
