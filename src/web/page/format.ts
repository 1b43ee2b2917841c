import type { Count } from "../schemas.js";

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

const units: readonly (readonly [number, string])[] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1_000, "s"],
];

/** A duration with two digits that matter: `3 ms`, `1.4 s`, `2 h 5 min`. */
export function duration(ms: number): string {
  if (ms < 1) return ms <= 0 ? "0 ms" : `${ms.toFixed(ms < 0.1 ? 2 : 1)} ms`;
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const place = units.findIndex(([unit]) => ms >= unit);
  const [size, name] = units[place] ?? [1_000, "s"];
  const [smaller, smallerName] = units[place + 1] ?? [1, "ms"];
  const rest = Math.floor((ms % size) / smaller);
  return `${Math.floor(ms / size)} ${name}${rest === 0 ? "" : ` ${rest} ${smallerName}`}`;
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

/** How far off a moment is: `in 3 min`, `12 s ago`. */
export function distance(iso: string, now = Date.now()): string {
  const ms = Date.parse(iso) - now;
  if (Number.isNaN(ms)) return iso;
  if (Math.abs(ms) < 1_000) return "now";
  const rough = duration(Math.abs(ms)).split(" ").slice(0, 2).join(" ").replace(/\.\d+/, "");
  return ms > 0 ? `in ${rough}` : `${rough} ago`;
}

export function firstLine(text: string): string {
  return text.trim().split("\n", 1)[0] ?? "";
}
