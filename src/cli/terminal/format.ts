/** A longer and a shorter unit that are shown together, with their lengths in s. */
const days = { long: "d", longS: 86_400, short: "h", shortS: 3600 };
const pairs = [
  { long: "min", longS: 60, short: "s", shortS: 1, below: 3600 },
  { long: "h", longS: 3600, short: "min", shortS: 60, below: 86_400 },
] as const;

/** Formats a rounded duration, such as "0.3 ms", "12 ms", "3.4 s", "5 min 10 s", "2 h 5 min" or "3 d 4 h". */
export function formatDuration(ms: number): string {
  if (ms < 0) return `-${formatDuration(-ms)}`;
  if (ms > 0 && ms < 0.95) return `${ms.toFixed(1)} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const pair = pairs.find(({ shortS, below }) => Math.round(seconds / shortS) * shortS < below);
  const { long, longS, short, shortS } = pair ?? days;
  const rounded = Math.round(seconds / shortS) * shortS;
  const rest = (rounded % longS) / shortS;
  return `${Math.floor(rounded / longS)} ${long}${rest === 0 ? "" : ` ${rest} ${short}`}`;
}

const twoDigits = (number: number): string => String(number).padStart(2, "0");

/** Formats a time of the server in the local time zone, to the second. "infinity" is returned unchanged. */
export function formatTime(iso: string | null, now = new Date()): string {
  if (iso === null) return "";
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return iso;
  const clock = [time.getHours(), time.getMinutes(), time.getSeconds()].map(twoDigits).join(":");
  const day = [time.getFullYear(), twoDigits(time.getMonth() + 1), twoDigits(time.getDate())].join("-");
  return time.toDateString() === now.toDateString() ? clock : `${day} ${clock}`;
}

/** Formats a number with thousands separators, such as "1,234,567". */
export const formatNumber = (number: number): string => number.toLocaleString("en-US");

/** Formats a count with its noun, such as "1 task" or "2 tasks". */
export const formatCount = (number: number, noun: string): string =>
  `${formatNumber(number)} ${noun}${number === 1 ? "" : "s"}`;
