// The server of the page: its JSON, and the lines on which it tells what happens.

import type { FlowGraph, Only, RunDetail, RunDiff, RunRow, StepDetail } from "./api";
import {
  type LogPart, type PartAsked, Refused, type ProgressEvent, type RecordedEvent, type RunsPage, type RunsQuery, type Source, type Verb, type Watcher,
} from "./source";

export class Server implements Source {
  readonly frozenAt = null;
  readOnly = false;
  /** Called when the server does not know this page any more. */
  onLocked: (error: Refused) => void = () => {};
  private verbs: ReadonlySet<string> = new Set();

  /** `base`: the address that `api/` stands below, with a slash at its end. */
  constructor(private readonly base: string) {}

  async start(): Promise<void> {
    const me = await this.get<{ read_only: boolean; can_drive: boolean; verbs: readonly string[] }>("api/me");
    this.readOnly = me.read_only;
    this.verbs = new Set(me.verbs.filter((verb) => (verb !== "resume" && verb !== "plan") || me.can_drive));
  }

  can(verb: Verb): boolean {
    return this.verbs.has(verb);
  }

  runs(query: RunsQuery): Promise<RunsPage> {
    const asked = new URLSearchParams({ limit: String(query.limit) });
    if (query.q) asked.set("q", query.q);
    if (query.state) asked.set("state", query.state);
    if (query.cursor !== null) asked.set("cursor", query.cursor);
    return this.get(`api/runs?${asked}`);
  }

  run(id: string, steps: boolean): Promise<RunDetail> {
    return this.get(`api/runs/${encodeURIComponent(id)}${steps ? "" : "?steps=false"}`);
  }

  step(id: string, path: string): Promise<StepDetail> {
    return this.get(`api/runs/${encodeURIComponent(id)}/step?${new URLSearchParams({ path })}`);
  }

  async flow(id: string): Promise<FlowGraph | null> {
    const found = await this.get<{ graph: FlowGraph | null }>(`api/runs/${encodeURIComponent(id)}/graph`);
    return found.graph;
  }

  log(id: string, { words, only }: { words: string; only: Only }, part: PartAsked): Promise<LogPart> {
    const asked = new URLSearchParams({ limit: String(part.limit) });
    if (words) asked.set("q", words);
    if (only) asked.set("only", only);
    if (part.start !== undefined) asked.set("start", String(part.start));
    if (part.line !== undefined) asked.set("line", String(part.line));
    return this.get(`api/runs/${encodeURIComponent(id)}/log?${asked}`);
  }

  event(id: string, seq: number): Promise<{ readonly [name: string]: unknown }> {
    return this.get(`api/runs/${encodeURIComponent(id)}/event?number=${seq}`);
  }

  recordOf(id: string): string {
    return `${this.base}api/runs/${encodeURIComponent(id)}/record`;
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

  watch(id: string, after: number, step: string | null, watcher: Watcher): () => void {
    const more = step === null ? "" : `&${new URLSearchParams({ step })}`;
    const address = (seq: number) => `${this.base}api/runs/${encodeURIComponent(id)}/events?rows=true&after=${seq}${more}`;
    const line = (open: boolean) => {
      watcher.line(open);
      if (!open) this.look();
    };
    return keepLine(address, after, line, {
      record: (data) => watcher.record(data as RecordedEvent),
      progress: (data) => watcher.progress(data as ProgressEvent),
      run: (data) => watcher.run(data as RunRow),
      reset: () => watcher.reset(),
    });
  }

  watchRuns(row: (row: RunRow) => void, open: (open: boolean) => void): () => void {
    const line = (is: boolean) => {
      open(is);
      if (!is) this.look();
    };
    return keepLine(() => `${this.base}api/events`, 0, line, { run: (data) => row(data as RunRow) });
  }

  /** Find out whether this page may still ask: a browser does not say why a line is not opened. */
  private look(): void {
    if (document.hidden) return;
    this.get("api/me").catch((error: unknown) => {
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) this.onLocked(error);
    });
  }

  private async get<T>(path: string): Promise<T> {
    return read<T>(await fetch(this.base + path, { credentials: "same-origin" }));
  }
}

const AGAIN_MS = 3000;
const SILENT_MS = 35_000;
const HIDDEN_MS = 20_000;

/**
 * Keep a line open on which a server tells what happens; the way to close it.
 *
 * A browser opens one again by itself when it breaks, from the last event on. But it gives up when
 * the server refuses (one that is starting again, say), and does not see that nothing can come any
 * more (a laptop that slept): then another one is opened here, from the last event on as well.
 * While nobody sees the page, in a tab behind others, it has none: a browser opens only a few to one
 * server.
 */
export function keepLine(
  address: (after: number) => string,
  after: number,
  told: (open: boolean) => void,
  takes: { readonly [name: string]: (data: unknown) => void },
): () => void {
  let last = after;
  let line: EventSource | null = null;
  let again: ReturnType<typeof setTimeout> | null = null;
  let silent: ReturnType<typeof setTimeout> | null = null;
  let unseen: ReturnType<typeof setTimeout> | null = null;
  let beats = false;
  const clear = (timer: ReturnType<typeof setTimeout> | null) => timer !== null && clearTimeout(timer);
  const open = (): void => {
    const mine = new EventSource(address(last));
    line = mine;
    mine.addEventListener("open", () => told(true));
    mine.addEventListener("error", () => {
      told(false);
      if (mine.readyState !== EventSource.CLOSED) return;
      clear(again);
      again = setTimeout(open, AGAIN_MS);
    });
    const heard = (): void => {
      clear(silent);
      if (beats) silent = setTimeout(lost, SILENT_MS);
    };
    mine.addEventListener("beat", () => {
      beats = true;
      heard();
    });
    for (const [name, take] of Object.entries(takes)) {
      mine.addEventListener(name, (event) => {
        const id = Number(event.lastEventId);
        if (id > last) last = id;
        heard();
        take(event.data ? (JSON.parse(event.data as string) as unknown) : null);
      });
    }
  };
  const lost = (): void => {
    told(false);
    line?.close();
    open();
  };
  const rest = (): void => {
    line?.close();
    line = null;
    clear(again);
    clear(silent);
    told(false);
  };
  const look = (): void => {
    clear(unseen);
    unseen = null;
    if (document.hidden) unseen = setTimeout(rest, HIDDEN_MS);
    else if (line === null) open();
  };
  document.addEventListener("visibilitychange", look);
  open();
  return () => {
    document.removeEventListener("visibilitychange", look);
    line?.close();
    clear(again);
    clear(silent);
    clear(unseen);
  };
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
