// The server of the page: its JSON, and the lines on which it tells what happens.

import type { RunDetail, RunDiff, RunGraph, RunRow, StepDetail } from "./api";
import {
  Refused, type ProgressEvent, type RecordedEvent, type RunsPage, type RunsQuery, type Source, type Verb, type Watcher,
} from "./source";

export class Server implements Source {
  readonly frozenAt = null;
  readOnly = false;

  /** `base`: the address that `api/` stands below, with a slash at its end. */
  constructor(private readonly base: string) {}

  async start(): Promise<void> {
    const me = await this.get<{ read_only?: boolean }>("api/me");
    this.readOnly = me.read_only === true;
  }

  runs(query: RunsQuery): Promise<RunsPage> {
    const asked = new URLSearchParams({ limit: String(query.limit) });
    if (query.q) asked.set("q", query.q);
    if (query.state) asked.set("state", query.state);
    if (query.cursor !== null) asked.set("cursor", query.cursor);
    return this.get(`api/runs?${asked}`);
  }

  run(id: string): Promise<RunDetail> {
    return this.get(`api/runs/${encodeURIComponent(id)}`);
  }

  step(id: string, path: string): Promise<StepDetail> {
    return this.get(`api/runs/${encodeURIComponent(id)}/step?${new URLSearchParams({ path })}`);
  }

  async graph(id: string): Promise<RunGraph | null> {
    try {
      return await this.get<RunGraph>(`api/runs/${encodeURIComponent(id)}/graph`);
    } catch {
      return null;
    }
  }

  diff(a: string, b: string): Promise<RunDiff> {
    return this.get(`api/diff?${new URLSearchParams({ a, b })}`);
  }

  async act(id: string, verb: Verb, body: object): Promise<{ readonly [name: string]: unknown }> {
    const response = await fetch(`${this.base}api/runs/${encodeURIComponent(id)}/${verb}`, {
      method: "POST",
      credentials: "same-origin",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    return read(response);
  }

  watch(id: string, after: number, watcher: Watcher): () => void {
    const line = new EventSource(`${this.base}api/runs/${encodeURIComponent(id)}/events?after=${after}`);
    const lost = watchLine(line, (open) => watcher.line(open));
    line.addEventListener("record", (event) => watcher.record(JSON.parse(event.data as string) as RecordedEvent));
    line.addEventListener("progress", (event) => watcher.progress(JSON.parse(event.data as string) as ProgressEvent));
    line.addEventListener("run", (event) => watcher.run(JSON.parse(event.data as string) as RunRow));
    line.addEventListener("reset", () => watcher.reset());
    return lost;
  }

  watchRuns(row: (row: RunRow) => void, open: (open: boolean) => void): () => void {
    const line = new EventSource(`${this.base}api/events`);
    const lost = watchLine(line, open);
    line.addEventListener("run", (event) => row(JSON.parse(event.data as string) as RunRow));
    return lost;
  }

  private async get<T>(path: string): Promise<T> {
    return read<T>(await fetch(this.base + path, { credentials: "same-origin" }));
  }
}

/** Tell whether a line is open. A browser opens one again by itself, from the last event on. */
function watchLine(line: EventSource, told: (open: boolean) => void): () => void {
  line.addEventListener("open", () => told(true));
  line.addEventListener("error", () => told(false));
  return () => line.close();
}

async function read<T>(response: Response): Promise<T> {
  const text = await response.text();
  let said: unknown = null;
  try {
    said = JSON.parse(text);
  } catch {
    if (response.ok) throw new Refused("The server did not answer with JSON.", response.status);
  }
  if (response.ok) return said as T;
  const fields = typeof said === "object" && said !== null ? (said as { [name: string]: unknown }) : {};
  const message = fields["error"];
  throw new Refused(
    typeof message === "string" ? message : `The server answered ${response.status} ${response.statusText}`,
    response.status,
    fields,
  );
}
