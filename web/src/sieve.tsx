// Which steps are shown: by words, by how they stand, by why they failed.

import type { StepState } from "./api";
import { whole } from "./format";
import { SearchBox } from "./search_box";
import type { Tally } from "./tree";
import { Foreign } from "./ui";

export const FILTERS: readonly [string, readonly StepState[]][] = [
  ["running", ["running"]],
  ["waiting", ["waiting"]],
  ["failed", ["failed", "interrupted"]],
];
const MOST_REASONS = 4;

interface Props {
  readonly text: string;
  readonly onSearch: (text: string) => void;
  readonly only: string;
  readonly onOnly: (only: string) => void;
  readonly leaves: Tally;
  /** Kinds of errors, and how many steps failed by each. */
  readonly reasons: readonly [string, number][];
  /** Go to the first step that fits. */
  readonly onFirst: () => void;
}

export function Sieve({ text, onSearch, only, onOnly, leaves, reasons, onFirst }: Props) {
  return (
    <div class="sieve">
      <div class="chips" role="group" aria-label="Show only">
        {FILTERS.map(([name, states]) => {
          const n = states.reduce((sum, state) => sum + (leaves[state] ?? 0), 0);
          if (n === 0 && only !== name) return null;
          return (
            <button key={name} type="button" class="chip" aria-pressed={only === name} onClick={() => onOnly(only === name ? "" : name)}>
              <b>{whole(n)}</b> {name}
            </button>
          );
        })}
        {reasons.length > 1 &&
          reasons.slice(0, MOST_REASONS).map(([kind, n]) => (
            <button key={kind} type="button" class="chip mono" aria-pressed={text === kind} onClick={() => onSearch(text === kind ? "" : kind)}>
              <Foreign text={kind} /> ×{whole(n)}
            </button>
          ))}
      </div>
      <SearchBox text={text} onSearch={onSearch} hint="Search steps" label="Search steps by path, kind, error" onFirst={onFirst} />
    </div>
  );
}
