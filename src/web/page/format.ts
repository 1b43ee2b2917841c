import type { Count } from "../../tasks/queries/rowCounts.js";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function numberText(value: number): string {
  return Math.abs(value) < 100_000 ? whole.format(value) : compact.format(value);
}

export function countText({ value, exact }: Count): string {
  return `${exact ? "" : "≈ "}${numberText(value)}`;
}

/**
 * Formats a count. PostgreSQL's planner never estimates less than one row, so an estimate of one row is shown as "few".
 */
export function countOrFewText(value: Count): string {
  return !value.exact && value.value <= 1 ? "few" : countText(value);
}

export function rateText(perSecond: number): string {
  if (perSecond === 0) return "0";
  if (perSecond >= 10 || Number.isInteger(perSecond)) return numberText(perSecond);
  return perSecond >= 0.1 ? perSecond.toFixed(1) : perSecond.toFixed(2);
}

/** A longer and a shorter unit that are shown together, with their lengths in ms. */
const days = { long: "d", longMs: 86_400_000, short: "h", shortMs: 3_600_000 };
const pairs = [
  { long: "min", longMs: 60_000, short: "s", shortMs: 1_000, below: 3_600_000 },
  { long: "h", longMs: 3_600_000, short: "min", shortMs: 60_000, below: 86_400_000 },
] as const;

/** Formats a duration, rounded, for example `3 ms`, `1.4 s` or `2 h 5 min`. */
export function durationText(ms: number): string {
  if (ms <= 0) return "0 ms";
  if (ms < 0.95) return `${ms.toFixed(ms < 0.095 ? 2 : 1)} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 9_950) return `${(ms / 1_000).toFixed(1)} s`;
  return wholeSecondsText(ms);
}

/** Formats a duration, rounded to seconds or longer units, for example `0 s`, `2 s` or `1 min 5 s`. */
export function wholeSecondsText(ms: number): string {
  if (ms < 59_500) return `${Math.round(ms / 1_000)} s`;
  const pair = pairs.find(({ shortMs, below }) => Math.round(ms / shortMs) * shortMs < below);
  const { long, longMs, short, shortMs } = pair ?? days;
  const rounded = Math.round(ms / shortMs) * shortMs;
  const rest = (rounded % longMs) / shortMs;
  return `${Math.floor(rounded / longMs)} ${long}${rest === 0 ? "" : ` ${rest} ${short}`}`;
}

export function bytesText(size: number): string {
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

/** Formats the time of day, preceded by the date unless the date is today. */
export function timeText(iso: string): string {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return iso;
  const time = clock.format(date);
  return date.toDateString() === new Date().toDateString() ? time : `${day.format(date)}, ${time}`;
}

/** Formats a duration, rounded to a single unit, for example `75 s`, `2 min` or `8 h`. */
function roughDurationText(ms: number): string {
  const seconds = Math.round(ms / 1_000);
  if (seconds < 90) return `${seconds} s`;
  const minutes = Math.round(ms / 60_000);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.round(ms / 3_600_000);
  return hours < 36 ? `${hours} h` : `${Math.round(ms / 86_400_000)} d`;
}

/** Formats a time relative to now, for example `in 3 min` or `12 s ago`. */
export function relativeTimeText(iso: string, now = Date.now()): string {
  const ms = Date.parse(iso) - now;
  if (Number.isNaN(ms)) return iso;
  if (Math.abs(ms) < 500) return "now";
  const rough = roughDurationText(Math.abs(ms));
  return ms > 0 ? `in ${rough}` : `${rough} ago`;
}

export function firstLine(text: string): string {
  return text.trim().split("\n", 1)[0] ?? "";
}
