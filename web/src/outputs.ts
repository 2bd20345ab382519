// What a step gave, without what its kind wraps around it. Pure.

import type { StepDetail } from "./api";

export interface Given {
  /** null: nothing besides what is shown elsewhere. */
  readonly value: unknown;
  readonly exitCode: string | null;
  readonly stdout: string;
  readonly stderr: string;
}

type Fields = { readonly [name: string]: unknown };

const PLAIN = { exitCode: null, stdout: "", stderr: "" };

/** The answer of an agent, the data of a command; any other output as it is. */
export function outputOf(detail: StepDetail): Given {
  const { output } = detail;
  if (detail.output_cut || !isObject(output)) return { ...PLAIN, value: output };
  switch (detail.step_type) {
    case "agent":
      return { ...PLAIN, value: "output" in output ? output["output"] : output };
    case "command":
      if (typeof output["exit_code"] !== "number") return { ...PLAIN, value: output };
      return {
        value: output["data"] ?? null,
        exitCode: String(output["exit_code"]),
        stdout: text(output["stdout"]),
        stderr: text(output["stderr"]),
      };
    case "validate":
      return { ...PLAIN, value: Array.isArray(output["rounds"]) ? null : output };
    default:
      return { ...PLAIN, value: output };
  }
}

export interface Round {
  readonly number: number;
  readonly stages: readonly { readonly name: string; readonly passed: boolean; readonly took: number | null; readonly error: string }[];
}

/** The rounds of a validation; none of any other step. */
export function roundsOf(detail: StepDetail): Round[] {
  const rounds = detail.step_type === "validate" && isObject(detail.output) ? detail.output["rounds"] : null;
  if (!Array.isArray(rounds)) return [];
  return rounds.filter(isObject).map((round, place) => ({
    number: typeof round["number"] === "number" ? round["number"] : place + 1,
    stages: (Array.isArray(round["stages"]) ? round["stages"] : []).filter(isObject).map((stage) => ({
      name: text(stage["name"]),
      passed: stage["passed"] === true,
      took: typeof stage["duration_ms"] === "number" ? stage["duration_ms"] : null,
      error: text(stage["error"]),
    })),
  }));
}

function isObject(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}
