// Where the page is, in the part of its address after `#`: it works under any prefix, and from a
// disk. `#/runs/ship-7f3a?view=tree&step=review%2F3`

import type { Only } from "./api";

export type View = "tree" | "timeline" | "graph" | "log" | "run";

/** What is shown of the log: lines with these words, those that are grave enough; and one of them. */
export interface LogPlace {
  readonly words: string;
  readonly only: Only;
  readonly line: number | null;
}

export type Place =
  | { page: "list"; query: string; state: string }
  | { page: "run"; run: string; view: View; step: string | null; log?: LogPlace }
  | { page: "diff"; a: string; b: string };

const VIEWS: readonly string[] = ["tree", "timeline", "graph", "log", "run"];
const ONLY: readonly string[] = ["errors", "warnings", "people"];

export const WHOLE_LOG: LogPlace = { words: "", only: "", line: null };

/** The place that an address names; an unknown one is the list. */
export function placeOf(hash: string): Place {
  const [path = "", search = ""] = hash.replace(/^#/, "").split("?", 2);
  const asked = new URLSearchParams(search);
  const parts = path.split("/").filter(Boolean).map(decoded);
  if (parts[0] === "runs" && parts[1] !== undefined) {
    const view = asked.get("view") ?? "tree";
    return {
      page: "run",
      run: parts[1],
      view: (VIEWS.includes(view) ? view : "tree") as View,
      step: asked.get("step"),
      ...(view === "log" ? { log: logOf(asked) } : {}),
    };
  }
  if (parts[0] === "diff" && parts[1] !== undefined && parts[2] !== undefined) {
    return { page: "diff", a: parts[1], b: parts[2] };
  }
  return { page: "list", query: asked.get("q") ?? "", state: asked.get("state") ?? "" };
}

/** The address of a place. */
export function hashOf(place: Place): string {
  const asked = new URLSearchParams();
  switch (place.page) {
    case "list":
      if (place.query) asked.set("q", place.query);
      if (place.state) asked.set("state", place.state);
      return `#/${tail(asked)}`;
    case "run":
      if (place.view !== "tree") asked.set("view", place.view);
      if (place.view === "log" && place.log) {
        if (place.log.words) asked.set("q", place.log.words);
        if (place.log.only) asked.set("only", place.log.only);
        if (place.log.line !== null) asked.set("line", String(place.log.line));
      }
      if (place.step !== null) asked.set("step", place.step);
      return `#/runs/${encodeURIComponent(place.run)}${tail(asked)}`;
    case "diff":
      return `#/diff/${encodeURIComponent(place.a)}/${encodeURIComponent(place.b)}`;
  }
}

function logOf(asked: URLSearchParams): LogPlace {
  const only = asked.get("only") ?? "";
  const line = asked.get("line") ?? "";
  return {
    words: asked.get("q") ?? "",
    only: (ONLY.includes(only) ? only : "") as Only,
    line: /^[1-9]\d{0,14}$/.test(line) ? Number(line) : null,
  };
}

function tail(asked: URLSearchParams): string {
  const text = asked.toString();
  return text ? `?${text}` : "";
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
