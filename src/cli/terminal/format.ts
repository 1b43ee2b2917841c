/** Longer units with the shorter one behind each, in s. */
const days = { long: "d", longS: 86_400, short: "h", shortS: 3600 };
const pairs = [
  { long: "min", longS: 60, short: "s", shortS: 1, below: 3600 },
  { long: "h", longS: 3600, short: "min", shortS: 60, below: 86_400 },
] as const;

/** A length of time for a reader, rounded: "0.3 ms", "12 ms", "3.4 s", "5 min 10 s", "2 h 5 min", "3 d 4 h". */
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

const two = (number: number): string => String(number).padStart(2, "0");

/** A time of the server's for a reader: in the zone of the machine, to the second; "infinity" as it is. */
export function shownTime(iso: string | null, now = new Date()): string {
  if (iso === null) return "";
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return iso;
  const clock = [time.getHours(), time.getMinutes(), time.getSeconds()].map(two).join(":");
  const day = [time.getFullYear(), two(time.getMonth() + 1), two(time.getDate())].join("-");
  return time.toDateString() === now.toDateString() ? clock : `${day} ${clock}`;
}

/** 1234567 as "1,234,567". */
export const shownNumber = (number: number): string => number.toLocaleString("en-US");

/** "1 task", "2 tasks". */
export const counted = (number: number, what: string): string =>
  `${shownNumber(number)} ${what}${number === 1 ? "" : "s"}`;
