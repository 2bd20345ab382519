// Texts of a run are somebody else's: they are shown as text, and can do nothing to the page.

const ANSI =
  /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])/g;
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** The text without colours and cursor movements of a terminal, and with every other control
 * character, and those that turn the direction of writing, made visible. */
export function visible(text: string): string {
  return text.replace(ANSI, "").replace(/\r\n/g, "\n").replace(CONTROL, spelled);
}

/** The same on one line, cut to `most` characters. */
export function oneLine(text: string, most = 300): string {
  const short = text.length > most * 4 ? text.slice(0, most * 4) : text;
  const line = visible(short).replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

function spelled(char: string): string {
  const code = char.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `⟨${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** The last `most` characters of a text that grows by pieces. Mutable. */
export class Tail {
  private pieces: string[] = [];
  private length = 0;
  /** How many characters were let go. */
  dropped = 0;

  constructor(readonly most: number) {}

  add(text: string): void {
    this.pieces.push(text);
    this.length += text.length;
    if (this.length > this.most * 2 || this.pieces.length > 4096) this.settle();
  }

  private settle(): void {
    let whole = this.pieces.join("");
    if (whole.length > this.most) {
      this.dropped += whole.length - this.most;
      whole = whole.slice(-this.most);
    }
    this.pieces = [whole];
    this.length = whole.length;
  }

  get text(): string {
    this.settle();
    return this.pieces[0] ?? "";
  }
}

/** A value as indented JSON; text that is no JSON stays as it is. */
export function pretty(value: unknown): string {
  if (typeof value === "string") return value;
  return JSON.stringify(value, null, 2) ?? "";
}
