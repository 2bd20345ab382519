// A field in which somebody writes what is looked for; `/` leads to it.

import { Icon } from "./icons";

interface Props {
  readonly text: string;
  readonly onSearch: (text: string) => void;
  readonly hint: string;
  /** What is searched, for who does not see the field. */
  readonly label: string;
  /** Go to the first of what was found. */
  readonly onFirst: () => void;
}

export function SearchBox({ text, onSearch, hint, label, onFirst }: Props) {
  return (
    <div class="search">
      <Icon of="search" />
      <input
        type="search"
        data-search
        placeholder={hint}
        aria-label={label}
        value={text}
        onInput={(event) => onSearch(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "ArrowDown" && event.key !== "Enter") return;
          event.preventDefault();
          onFirst();
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}
