// Numbers and times as people read them. Nothing here reads a clock.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A duration in two units at most: `840 ms`, `12.4 s`, `3 m 07 s`, `2 h 05 m`, `4 d 3 h`. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "";
  const all = Math.max(0, ms);
  if (all < 1) return "0 ms";
  if (all < SECOND) return `${Math.round(all)} ms`;
  if (all < 59_950) return `${(all / SECOND).toFixed(1)} s`;
  const two = (n: number) => String(n).padStart(2, "0");
  if (all < HOUR) {
    const seconds = Math.round(all / SECOND);
    if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${two(seconds % 60)} s`;
  }
  if (all < DAY) return `${Math.floor(all / HOUR)} h ${two(Math.floor((all % HOUR) / MINUTE))} m`;
  return `${Math.floor(all / DAY)} d ${Math.floor((all % DAY) / HOUR)} h`;
}

/** How long ago, or until when, roughly: `now`, `40 s ago`, `in 3 h`. Times are unix seconds. */
export function relative(at: number, now: number): string {
  const apart = Math.abs(now - at);
  if (apart < 5) return "now";
  const said =
    apart < 60
      ? `${Math.round(apart)} s`
      : apart < 3600
        ? `${Math.round(apart / 60)} min`
        : apart < 86_400
          ? `${Math.round(apart / 3600)} h`
          : `${Math.round(apart / 86_400)} d`;
  return at <= now ? `${said} ago` : `in ${said}`;
}

/** A moment in the reader's own time zone: `2026-11-24 04:12:09`. */
export function moment(at: number | null | undefined): string {
  if (!at) return "";
  const date = new Date(at * 1000);
  const two = (n: number) => String(n).padStart(2, "0");
  return (
    `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`
  );
}

/** The time of day in the reader's own time zone: `04:12:09`; with the day where that is not clear. */
export function clockTime(at: number, day: boolean): string {
  const date = new Date(at * 1000);
  const two = (n: number) => String(n).padStart(2, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return day ? `${MONTHS[date.getMonth()]} ${two(date.getDate())} ${time}` : time;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** A round moment on an axis whose marks are so many seconds apart: `Nov 24`, `14:30`, `14:30:05`. */
export function mark(at: number, apart: number): string {
  const date = new Date(at * 1000);
  const two = (n: number) => String(n).padStart(2, "0");
  const midnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
  if (apart >= DAY / SECOND || midnight) return `${MONTHS[date.getMonth()]} ${date.getDate()}`;
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return apart < 60 ? `${time}:${two(date.getSeconds())}` : time;
}

/** Dollars, with cents, or with four digits where it is less than one. */
export function dollars(value: number | null | undefined): string {
  if (value === null || value === undefined) return "";
  if (value !== 0 && Math.abs(value) < 0.1) return `$${value.toFixed(4)}`;
  return `$${value.toFixed(2)}`;
}

/** A count, shortened: `950`, `12.4 k`, `3.1 M`. */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined) return "";
  if (value < 1000) return String(value);
  if (value < 999_950) return `${trim((value / 1000).toFixed(1))} k`;
  return `${trim((value / 1_000_000).toFixed(1))} M`;
}

/** A whole number with its thousands parted: `10,000`. */
export function whole(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

/** A size of text: `812 B`, `64.0 KB`, `1.2 MB`. */
export function size(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(1)} KB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}

/** `1 step`, `3 steps`. */
export function many(n: number, one: string, more = `${one}s`): string {
  return `${whole(n)} ${n === 1 ? one : more}`;
}

function trim(text: string): string {
  return text.endsWith(".0") ? text.slice(0, -2) : text;
}
