const twoDigits = (number: number): string => String(number).padStart(2, "0");

const clockOf = (time: Date): string =>
  [time.getHours(), time.getMinutes(), time.getSeconds()].map(twoDigits).join(":");

const dayOf = (time: Date): string =>
  [time.getFullYear(), twoDigits(time.getMonth() + 1), twoDigits(time.getDate())].join("-");

/** Formats a time of the server in the local time zone, to the second. "infinity" is returned unchanged. */
export function formatTime(iso: string | null, now = new Date()): string {
  if (iso === null) return "";
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return iso;
  return time.toDateString() === now.toDateString() ? clockOf(time) : `${dayOf(time)} ${clockOf(time)}`;
}

/** Formats a time of the server in the local time zone, to the second, with the zone's difference from UTC. */
export const formatZonedTime = (iso: string): string => formatWithZone(iso, "");

/** Like `formatZonedTime`, but to the millisecond. */
export const formatFullTime = (iso: string): string =>
  formatWithZone(iso, `.${String(new Date(iso).getMilliseconds()).padStart(3, "0")}`);

function formatWithZone(iso: string, fraction: string): string {
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return iso;
  const minutes = -time.getTimezoneOffset();
  const offset = [Math.trunc(Math.abs(minutes) / 60), Math.abs(minutes) % 60].map(twoDigits).join(":");
  return `${dayOf(time)} ${clockOf(time)}${fraction} ${minutes < 0 ? "-" : "+"}${offset}`;
}

/** Formats a number with thousands separators, such as "1,234,567". */
export const formatNumber = (number: number): string => number.toLocaleString("en-US");

/** Formats a count with its noun, such as "1 task" or "2 tasks". */
export const formatCount = (number: number, noun: string): string =>
  `${formatNumber(number)} ${noun}${number === 1 ? "" : "s"}`;
