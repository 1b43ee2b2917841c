import type { Count } from "../api/schemas.js";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function number(value: number): string {
  return Math.abs(value) < 100_000 ? whole.format(value) : compact.format(value);
}

export function count({ value, exact }: Count): string {
  return `${exact ? "" : "≈ "}${number(value)}`;
}

/** The planner expects at least one row of whatever it knows nothing of. */
export function countOrFew(value: Count): string {
  return !value.exact && value.value <= 1 ? "few" : count(value);
}

export function rate(perSecond: number): string {
  if (perSecond === 0) return "0";
  if (perSecond >= 10 || Number.isInteger(perSecond)) return number(perSecond);
  return perSecond >= 0.1 ? perSecond.toFixed(1) : perSecond.toFixed(2);
}

/** Longer units with the shorter one behind each, in ms. */
const days = { long: "d", longMs: 86_400_000, short: "h", shortMs: 3_600_000 };
const pairs = [
  { long: "min", longMs: 60_000, short: "s", shortMs: 1_000, below: 3_600_000 },
  { long: "h", longMs: 3_600_000, short: "min", shortMs: 60_000, below: 86_400_000 },
] as const;

/** A duration with two digits that matter, rounded: `3 ms`, `1.4 s`, `2 h 5 min`. */
export function pageDuration(ms: number): string {
  if (ms <= 0) return "0 ms";
  if (ms < 0.95) return `${ms.toFixed(ms < 0.095 ? 2 : 1)} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 9_950) return `${(ms / 1_000).toFixed(1)} s`;
  return wholeDuration(ms);
}

/** A duration in whole seconds or longer units, rounded: `0 s`, `2 s`, `1 min 5 s`. */
export function wholeDuration(ms: number): string {
  if (ms < 59_500) return `${Math.round(ms / 1_000)} s`;
  const pair = pairs.find(({ shortMs, below }) => Math.round(ms / shortMs) * shortMs < below);
  const { long, longMs, short, shortMs } = pair ?? days;
  const rounded = Math.round(ms / shortMs) * shortMs;
  const rest = (rounded % longMs) / shortMs;
  return `${Math.floor(rounded / longMs)} ${long}${rest === 0 ? "" : ` ${rest} ${short}`}`;
}

export function bytes(size: number): string {
  if (size < 1024) return `${size} B`;
  const [shown, unit] = size < 1024 * 1024 ? [size / 1024, "kB"] : [size / 1024 / 1024, "MB"];
  return `${shown.toFixed(shown < 100 ? 1 : 0)} ${unit}`;
}

const clock = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** A moment as one reads it: the time today, with its day otherwise. */
export function moment(iso: string): string {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return iso;
  const time = clock.format(date);
  return date.toDateString() === new Date().toDateString() ? time : `${day.format(date)}, ${time}`;
}

/** A duration in the one unit that comes near it, rounded: `75 s`, `2 min`, `8 h`. */
function roughDuration(ms: number): string {
  const seconds = Math.round(ms / 1_000);
  if (seconds < 90) return `${seconds} s`;
  const minutes = Math.round(ms / 60_000);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.round(ms / 3_600_000);
  return hours < 36 ? `${hours} h` : `${Math.round(ms / 86_400_000)} d`;
}

/** How far off a moment is: `in 3 min`, `12 s ago`. */
export function distance(iso: string, now = Date.now()): string {
  const ms = Date.parse(iso) - now;
  if (Number.isNaN(ms)) return iso;
  if (Math.abs(ms) < 500) return "now";
  const rough = roughDuration(Math.abs(ms));
  return ms > 0 ? `in ${rough}` : `${rough} ago`;
}

export function firstLine(text: string): string {
  return text.trim().split("\n", 1)[0] ?? "";
}
