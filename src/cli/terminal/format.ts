import { describeCount, type Count } from "../../shared/count.js";

const twoDigits = (number: number): string => String(number).padStart(2, "0");

const clockOf = (time: Date): string =>
  [time.getHours(), time.getMinutes(), time.getSeconds()].map(twoDigits).join(":");

const dayOf = (time: Date): string =>
  [time.getFullYear(), twoDigits(time.getMonth() + 1), twoDigits(time.getDate())].join("-");

/** In the local time zone, to the second. "infinity" is returned unchanged. */
export function formatTime(iso: string | null): string {
  if (iso === null) return "";
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return iso;
  return time.toDateString() === new Date().toDateString() ? clockOf(time) : `${dayOf(time)} ${clockOf(time)}`;
}

/** In the local time zone, to the second, with its difference from UTC. */
export const formatZonedTime = (iso: string): string => formatWithZone(iso, "");

export const formatFullTime = (iso: string): string =>
  formatWithZone(iso, `.${String(new Date(iso).getMilliseconds()).padStart(3, "0")}`);

function formatWithZone(iso: string, fraction: string): string {
  const time = new Date(iso);
  if (Number.isNaN(time.getTime())) return iso;
  const minutes = -time.getTimezoneOffset();
  const offset = [Math.trunc(Math.abs(minutes) / 60), Math.abs(minutes) % 60].map(twoDigits).join(":");
  return `${dayOf(time)} ${clockOf(time)}${fraction} ${minutes < 0 ? "-" : "+"}${offset}`;
}

export const formatNumber = (number: number): string => number.toLocaleString("en-US");

export const formatEstimate = (count: Count): string => describeCount(count, { about: "about", format: formatNumber });

export const formatCount = (number: number, noun: string): string =>
  `${formatNumber(number)} ${noun}${number === 1 ? "" : "s"}`;

const escapes: Readonly<Record<string, string>> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

export function copyField(text: string | null): string {
  if (text === null) return "\\N";
  return text.replace(/[\\\n\r\t]/g, (character) => escapes[character] ?? character);
}

const segments = new Intl.Segmenter();

/** East Asian characters and emoji take two columns, combining marks none. */
const wide =
  /^(?:\p{Emoji_Presentation}|\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Script=Hangul}|[\u3000-\u303f\uff01-\uff60\uffe0-\uffe6])|\u{fe0f}/u;
const zeroWidth = /^[\p{Mn}\p{Me}\p{Cf}]+$/u;

function segmentWidth(segment: string): number {
  if (zeroWidth.test(segment)) return 0;
  return wide.test(segment) ? 2 : 1;
}

export function displayWidth(text: string): number {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length;
  let columns = 0;
  for (const { segment } of segments.segment(text)) columns += segmentWidth(segment);
  return columns;
}

export function truncate(text: string, maxColumns: number): string {
  if (displayWidth(text) <= maxColumns) return text;
  let kept = "";
  let columns = 0;
  for (const { segment } of segments.segment(text)) {
    const next = segmentWidth(segment);
    if (columns + next > maxColumns - 1) break;
    kept += segment;
    columns += next;
  }
  return maxColumns < 1 ? "" : `${kept}…`;
}

/** Breaks a line at spaces into lines of at most `maxColumns`. A word that is wider than that is truncated. */
export function wrap(text: string, maxColumns: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    const longer = line === "" ? word : `${line} ${word}`;
    if (displayWidth(longer) <= maxColumns) {
      line = longer;
    } else {
      if (line !== "") lines.push(line);
      line = truncate(word, maxColumns);
    }
  }
  return [...lines, line];
}

export function padToWidth(text: string, columns: number, alignRight: boolean): string {
  const spaces = " ".repeat(Math.max(0, columns - displayWidth(text)));
  return alignRight ? `${spaces}${text}` : `${text}${spaces}`;
}

/** Maximum number of lines of a value that a terminal shows without --full. */
const maxLines = 20;
const maxCharacters = 4000;

export function truncateText(text: string, full: boolean): string[] {
  const all = text.split("\n");
  if (full) return all;
  const lines = text.slice(0, maxCharacters).split("\n").slice(0, maxLines);
  const kept = lines.join("\n").length;
  if (kept === text.length) return all;
  const hidden = text.length - kept;
  return [...lines, `… ${formatCount(hidden, "more character")} (see --full)`];
}
