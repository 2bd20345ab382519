import { expect, test } from "vitest";
import { activityOf } from "../src/activity";
import type { StepDetail } from "../src/api";
import { outputOf, roundsOf } from "../src/outputs";
import { step } from "./steps";

const line = (type: string, at: number, more: object) => JSON.stringify({ type, at, path: "a", ...more });

test("tools are told with what they were given, how they ended, and how long they took", () => {
  const text = [
    '"cut off":1}',
    line("AgentToolStarted", 10, { id: "1", name: "Bash", input: { command: "ls -l", timeout: 3 } }),
    line("AgentToolStarted", 11, { id: "2", name: "apply_patch", input: { changes: [{ path: "a.py" }, { path: "b.py" }] } }),
    line("AgentToolCompleted", 12.5, { id: "1", ok: false, output: "no such file" }),
    line("AgentRetry", 13, { reason: "overloaded" }),
    line("AgentFinished", 14, { files_changed: ["a.py", "b.py", "a.py"] }),
    '{"type":"AgentToolStarted","at":15,"na',
  ].join("\n");
  const { deeds, files } = activityOf(text);
  expect(deeds.map(({ name, brief, ok, took }) => [name, brief, ok, took])).toEqual([
    ["Bash", "ls -l", false, 2500], ["apply_patch", "a.py, b.py", null, null], ["try again", "overloaded", null, null],
  ]);
  expect(files).toEqual(["a.py", "b.py"]);
});

test("lines that say something else, or nothing, are left out", () => {
  expect(activityOf('\n[]\n{"type":3}\n{"type":"AgentToolCompleted","id":"x"}\nnull')).toEqual({ deeds: [], files: [] });
});

const detail = (step_type: string, output: unknown): StepDetail =>
  ({ ...step("a", "succeeded", { step_type }), output }) as unknown as StepDetail;

test("an output is shown without what its kind wraps around it", () => {
  expect(outputOf(detail("agent", { output: { n: 1 }, usage: null })).value).toEqual({ n: 1 });
  expect(outputOf(detail("command", { exit_code: 2, stdout: "x", stderr: "y" }))).toEqual({ value: null, exitCode: "2", stdout: "x", stderr: "y" });
  expect(outputOf(detail("python", { output: 1 })).value).toEqual({ output: 1 });
  expect(outputOf(detail("agent", "default")).value).toBe("default");
});

test("the rounds of a validation are told stage by stage", () => {
  const rounds = [{ number: 1, stages: [{ name: "lint", passed: false, duration_ms: 5, error: "no" }, null] }];
  expect(roundsOf(detail("validate", { passed: false, rounds }))).toEqual([
    { number: 1, stages: [{ name: "lint", passed: false, took: 5, error: "no" }] },
  ]);
  expect(roundsOf(detail("python", { rounds }))).toEqual([]);
});
