// The page: where it has its data from, and which part of it is seen.

import { render } from "preact";
import { useEffect, useErrorBoundary, useMemo, useState } from "preact/hooks";
import { DiffPage } from "./diff_page";
import { frozenIn, frozenSource } from "./frozen";
import { Icon } from "./icons";
import { ListPage } from "./list";
import { hashOf, placeOf, type Place } from "./router";
import { RunList } from "./run_list";
import { RunPage } from "./run_page";
import { Server } from "./server";
import { Refused, type Source } from "./source";
import { Dialog, Foreign, Notices } from "./ui";
import { stopClock, useChanges, useKeys } from "./hooks";
import "./style.css";

const KEYS: readonly [readonly string[], string][] = [
  [["/"], "search"],
  [["j", "k"], "next, previous (the arrow keys do, too)"],
  [["l", "h"], "unfold, fold"],
  [["Enter"], "open"],
  [["1", "2", "3", "4", "5"], "tree, timeline, graph, log, inputs and result"],
  [["+", "-", "0"], "on the timeline: a shorter time, a longer one, all of it"],
  [["Shift ←", "Shift →"], "on the timeline: earlier, later"],
  [["a"], "answer the first question"],
  [["Esc"], "close the step, or the event"],
  [["g"], "all runs"],
  [["?"], "this help"],
];

function usePlace(): Place {
  const [place, setPlace] = useState(() => placeOf(location.hash));
  useEffect(() => {
    const look = () => setPlace(placeOf(location.hash));
    look(); // it may have changed since it was first read
    addEventListener("hashchange", look);
    return () => removeEventListener("hashchange", look);
  }, []);
  return place;
}

function App({ source, report }: { source: Source; report: string | null }) {
  const [broken] = useErrorBoundary((error) => console.error(error));
  if (broken) return <Closed error={new Refused(`This page has a fault: ${String(broken)}. Load it again.`, 0)} />;
  return <Whole source={source} report={report} />;
}

function Whole({ source, report }: { source: Source; report: string | null }) {
  const asked = usePlace();
  const place: Place =
    report === null
      ? asked
      : asked.page === "run"
        ? { ...asked, run: report }
        : { page: "run", run: report, view: "tree", step: null };
  const [help, setHelp] = useState(false);
  const [line, setLine] = useState<boolean | null>(null);
  useKeys((event) => {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) {
      if (event.key === "Escape" && target.matches("[data-search]")) target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "/") {
      event.preventDefault();
      document.querySelector<HTMLInputElement>("[data-search]")?.select();
      document.querySelector<HTMLInputElement>("[data-search]")?.focus();
    } else if (event.key === "?") setHelp(true);
    else if (event.key === "g" && report === null) location.hash = "#/";
  });
  return (
    <>
      <header class="top">
        <a class="brand" href={report === null ? "#/" : hashOf(place)} aria-label="handrail, all runs">
          <Icon of="rail" /> <span>handrail</span>
        </a>
        <nav class="crumbs grow" aria-label="Place">
          {place.page === "run" && (
            <>
              {report === null && <a href="#/">Runs</a>}
              {report === null && <span aria-hidden="true">/</span>}
              <span class="here mono cut" aria-current="page"><Foreign text={place.run} /></span>
            </>
          )}
          {place.page === "diff" && <><a href="#/">Runs</a><span aria-hidden="true">/</span><span class="here" aria-current="page">compare</span></>}
        </nav>
        {source.readOnly && report === null && <span class="tag">read only</span>}
        {place.page !== "diff" && <Line frozen={report !== null} open={line} />}
        <button type="button" class="button bare square" aria-label="Keys and help" onClick={() => setHelp(true)}>?</button>
      </header>
      {place.page === "run" ? (
        <RunPage key={place.run} source={source} place={place} onLine={setLine} />
      ) : place.page === "diff" ? (
        <DiffPage source={source} place={place} />
      ) : (
        <List source={source} place={place} onLine={setLine} />
      )}
      <Notices />
      {help && (
        <Dialog title="Keys" onClose={() => setHelp(false)}>
          <div class="inside">
            <h2>Keys</h2>
            <dl class="keys">
              {KEYS.map(([keys, what]) => [
                <dt key={what}>{keys.map((key) => <kbd key={key}>{key}</kbd>)}</dt>,
                <dd key={`${what}:`}>{what}</dd>,
              ])}
            </dl>
            <div class="row"><button type="button" class="button" onClick={() => setHelp(false)}>Close</button></div>
          </div>
        </Dialog>
      )}
    </>
  );
}

function List({ source, place, onLine }: { source: Source; place: Extract<Place, { page: "list" }>; onLine: (open: boolean | null) => void }) {
  const list = useMemo(() => new RunList(source), [source]);
  useEffect(() => list.open(), [list]);
  useChanges(list);
  useEffect(() => onLine(list.online), [list.online]);
  return <ListPage list={list} place={place} />;
}

function Line({ frozen, open }: { frozen: boolean; open: boolean | null }) {
  if (frozen) return <span class="live over">report</span>;
  if (open === null) return <span class="live over" role="status">connecting</span>;
  return open ? (
    <span class="live" role="status">live</span>
  ) : (
    <span class="live off" role="status">not live: trying again</span>
  );
}

function Closed({ error }: { error: Refused }) {
  return (
    <main>
      <div class="empty">
        {error.status === 401 || error.status === 403 ? (
          <>
            <h1>This page needs its key</h1>
            <p>Open the address that <code>handrail ui</code> printed: it has the key in it.</p>
          </>
        ) : (
          <>
            <h1>Nothing can be shown</h1>
            <p><Foreign text={error.message} /></p>
          </>
        )}
      </div>
    </main>
  );
}

async function main(): Promise<void> {
  const root = document.getElementById("app");
  if (!root) return;
  const frozen = frozenIn(document);
  if (frozen) stopClock(frozen.made_at);
  const source = frozen ? frozenSource(frozen) : new Server(new URL(".", location.href).href);
  try {
    await source.start();
  } catch (error) {
    render(<Closed error={error instanceof Refused ? error : new Refused(`The server does not answer: ${String(error)}`, 0)} />, root);
    return;
  }
  if (source instanceof Server) source.onLocked = (error) => render(<Closed error={error} />, root);
  render(<App source={source} report={frozen ? frozen.run.run.run_id : null} />, root);
}

void main();
