import { describeCount, type Count } from "../../shared/count.js";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export function numberText(value: number): string {
  return Math.abs(value) < 100_000 ? whole.format(value) : compact.format(value);
}

export const countText = (count: Count): string => describeCount(count, { about: "≈", format: numberText });

export function rateText(perSecond: number): string {
  if (perSecond === 0) return "0";
  if (perSecond >= 10 || Number.isInteger(perSecond)) return numberText(perSecond);
  return perSecond >= 0.1 ? perSecond.toFixed(1) : perSecond.toFixed(2);
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

export function timeText(iso: string): string {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return iso;
  const time = clock.format(date);
  return date.toDateString() === new Date().toDateString() ? time : `${day.format(date)}, ${time}`;
}

/** In the syntax of ISO 8601. */
const localClock = (date: Date): string =>
  new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().replace("Z", "");

/** Invalid values become "". */
export function toIso(local: string): string {
  const date = new Date(local);
  return Number.isNaN(date.getTime()) ? "" : date.toISOString();
}

/** Invalid times become "". */
export function toLocalInput(iso: string): string {
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? "" : localClock(date).slice(0, 19);
}

/**
 * Formats a time in the reader's time zone with date, milliseconds and UTC offset, for example
 * `2026-11-25 12:04:31.250 +01:00`. What is not a time, such as `infinity`, is returned unchanged.
 */
export function fullTimeText(iso: string): string {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return iso;
  const ahead = -date.getTimezoneOffset();
  const [hours, minutes] = [Math.trunc(Math.abs(ahead) / 60), Math.abs(ahead) % 60].map((part) =>
    String(part).padStart(2, "0"),
  );
  return `${localClock(date).replace("T", " ")} ${ahead < 0 ? "-" : "+"}${hours}:${minutes}`;
}

/**
 * Formats the clock's reading in a rule's zone: `2027-03-28 03:00:00+02:00` becomes `28 Mar, 03:00` in 2027. The
 * offset, the current year, and seconds that are 0 are left out.
 */
export function wallText(wall: string): string {
  const [date = "", time = ""] = wall.slice(0, 19).split(" ");
  const shown = day.format(new Date(`${date}T00:00:00`));
  const year = date.slice(0, 4);
  const dated = year === String(new Date().getFullYear()) ? shown : `${shown} ${year}`;
  return `${dated}, ${time.replace(/:00$/, "")}`;
}

export function localText(iso: string): string {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return iso;
  return wallText(localClock(date).replace("T", " "));
}

/** For example `75 s`, `2 min` or `8 h`. */
function roughDurationText(ms: number): string {
  const seconds = Math.round(ms / 1_000);
  if (seconds < 90) return `${seconds} s`;
  const minutes = Math.round(ms / 60_000);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.round(ms / 3_600_000);
  return hours < 36 ? `${hours} h` : `${Math.round(ms / 86_400_000)} d`;
}

/** For example `in 3 min` or `12 s ago`. */
export function relativeTimeText(iso: string, now = Date.now()): string {
  const ms = Date.parse(iso) - now;
  if (Number.isNaN(ms)) return iso;
  if (Math.abs(ms) < 500) return "now";
  const rough = roughDurationText(Math.abs(ms));
  return ms > 0 ? `in ${rough}` : `${rough} ago`;
}
