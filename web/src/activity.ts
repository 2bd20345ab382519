// What an agent did while it worked: its tools, and what it changed. Pure.

export interface Deed {
  readonly at: number;
  /** A tool's name, or what else happened. */
  readonly name: string;
  /** What it was given, in one line. */
  readonly brief: string;
  readonly input: unknown;
  output: string;
  /** null: it has not ended, or was no tool. */
  ok: boolean | null;
  took: number | null;
}

export interface Activity {
  readonly deeds: readonly Deed[];
  readonly files: readonly string[];
}

type Line = { readonly [name: string]: unknown };

/** The lines of `activity.jsonl`; a line that is not whole is left out. */
export function activityOf(text: string): Activity {
  const deeds: Deed[] = [];
  const open = new Map<string, Deed>();
  const files = new Set<string>();
  for (const line of linesOf(text)) {
    const at = typeof line["at"] === "number" ? line["at"] : 0;
    switch (line["type"]) {
      case "AgentToolStarted": {
        const input = line["input"];
        const deed = { at, name: say(line["name"]), brief: briefOf(input), input, output: "", ok: null, took: null };
        deeds.push(deed);
        open.set(say(line["id"]), deed);
        break;
      }
      case "AgentToolCompleted": {
        const deed = open.get(say(line["id"]));
        if (!deed) break;
        open.delete(say(line["id"]));
        deed.ok = line["ok"] !== false;
        deed.output = say(line["output"]);
        deed.took = (at - deed.at) * 1000;
        break;
      }
      case "AgentFinished":
        if (Array.isArray(line["files_changed"])) for (const file of line["files_changed"]) files.add(say(file));
        break;
      case "AgentRetry":
        deeds.push(note(at, "try again", say(line["reason"])));
        break;
      case "AgentCompaction":
        deeds.push(note(at, "make the session smaller", say(line["phase"])));
        break;
      case "AgentPermission":
        deeds.push(note(at, `${say(line["decision"])}: ${say(line["tool"])}`, say(line["reason"])));
        break;
      default:
    }
  }
  return { deeds, files: [...files] };
}

function note(at: number, name: string, brief: string): Deed {
  return { at, name, brief, input: null, output: "", ok: null, took: null };
}

function* linesOf(text: string): Generator<Line> {
  for (const line of text.split("\n")) {
    if (!line.startsWith("{")) continue;
    try {
      const found: unknown = JSON.parse(line);
      if (typeof found === "object" && found !== null) yield found as Line;
    } catch {
      // the beginning of the text was cut off, or its end has not come
    }
  }
}

const TELLING = ["command", "cmd", "file_path", "path", "filePath", "pattern", "query", "url", "title", "description"];

/** What of a tool's input says most: a command, a path. */
function briefOf(input: unknown): string {
  if (typeof input !== "object" || input === null) return say(input);
  const given = input as Line;
  for (const name of TELLING) {
    const value = given[name];
    if (typeof value === "string" && value) return value;
    if (Array.isArray(value)) return value.map(say).join(" ");
  }
  const paths = filesIn(given["changes"]);
  return paths.length > 0 ? paths.join(", ") : JSON.stringify(input);
}

function filesIn(changes: unknown): string[] {
  if (!Array.isArray(changes)) return [];
  return changes.flatMap((one: unknown) => {
    const path = typeof one === "object" && one !== null ? (one as Line)["path"] : null;
    return typeof path === "string" ? [path] : [];
  });
}

function say(value: unknown): string {
  return value === null || value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);
}
