// The parts of a step that holds others: how its members stand, what its rounds said.

import type { StepDetail } from "./api";
import { duration, whole } from "./format";
import { StateIcon, wordOf } from "./icons";
import { roundsOf } from "./outputs";
import { ORDER, TallyBar } from "./step_line";
import { oneLine } from "./text";
import { nameIn, shortType, type Tree } from "./tree";
import { Foreign } from "./ui";

const MOST_FAILED = 5;
const MOST_LOOKED_AT = 20_000;

/** How the members of a group stand, and some of those that failed, by why they did. */
export function Members({ tree, path, onStep }: { tree: Tree; path: string; onStep: (path: string) => void }) {
  const below = tree.children(path);
  if (below.length < 2) return null;
  const tally = tree.tally(path);
  const failed = new Map<string, string[]>();
  for (const child of below.slice(0, MOST_LOOKED_AT)) {
    const row = tree.get(child);
    if (row?.state !== "failed") continue;
    const kind = shortType(row.error_type);
    failed.set(kind, [...(failed.get(kind) ?? []), child]);
  }
  return (
    <section class="part">
      <div class="line1"><h3>{whole(below.length)} steps in it</h3></div>
      <div class="facts">
        <TallyBar tally={tally} />
        {ORDER.filter((state) => tally[state]).map((state) => <span key={state}><b>{whole(tally[state]!)}</b> {wordOf(state)}</span>)}
      </div>
      {[...failed].map(([kind, paths]) => (
        <div key={kind} class="why-failed">
          <p><span class="bad"><Foreign text={kind} /></span> × {whole(paths.length)}</p>
          <ul class="files">
            {paths.slice(0, MOST_FAILED).map((one) => (
              <li key={one}>
                <button type="button" class="link" onClick={() => onStep(one)}><Foreign text={nameIn(one, path)} /></button>{" "}
                <span class="soft"><Foreign text={oneLine(tree.get(one)?.error ?? "", 120)} /></span>
              </li>
            ))}
          </ul>
        </div>
      ))}
    </section>
  );
}

/** What each stage of a validation said, round by round. */
export function Rounds({ detail }: { detail: StepDetail }) {
  const rounds = roundsOf(detail);
  if (rounds.length === 0) return null;
  return (
    <section class="part">
      <div class="line1"><h3>Rounds</h3></div>
      <div class="wide">
        <table class="plain">
          <thead><tr><th>Round</th><th>Stage</th><th>Took</th><th>Why</th></tr></thead>
          <tbody>
            {rounds.flatMap((round) =>
              round.stages.map((stage) => (
                <tr key={`${round.number} ${stage.name}`}>
                  <td class="nums">{round.number}</td>
                  <td class="short">
                    <span class="pill"><StateIcon state={stage.passed ? "succeeded" : "failed"} /><Foreign text={stage.name} /></span>
                    <span class="unseen">{stage.passed ? " passed" : " failed"}</span>
                  </td>
                  <td class="short nums">{duration(stage.took)}</td>
                  <td><Foreign text={oneLine(stage.error, 400)} /></td>
                </tr>
              )),
            )}
          </tbody>
        </table>
      </div>
    </section>
  );
}
