// Where the page is, in the part of its address after `#`: it works under any prefix, and from a
// disk. `#/runs/ship-7f3a?view=tree&step=review%2F3`

export type View = "tree" | "timeline" | "graph" | "run";

export type Place =
  | { page: "list"; query: string; state: string }
  | { page: "run"; run: string; view: View; step: string | null }
  | { page: "diff"; a: string; b: string };

const VIEWS: readonly string[] = ["tree", "timeline", "graph", "run"];

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
      if (place.step !== null) asked.set("step", place.step);
      return `#/runs/${encodeURIComponent(place.run)}${tail(asked)}`;
    case "diff":
      return `#/diff/${encodeURIComponent(place.a)}/${encodeURIComponent(place.b)}`;
  }
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
