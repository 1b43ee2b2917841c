const segments = new Intl.Segmenter();

/**
 * Match characters that do not take exactly one column: East Asian characters and emoji take two columns (`wide`), and
 * combining marks take none (`zeroWidth`).
 */
const wide =
  /^(?:\p{Emoji_Presentation}|\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Script=Hangul}|[\u3000-\u303f\uff01-\uff60\uffe0-\uffe6])|\u{fe0f}/u;
const zeroWidth = /^[\p{Mn}\p{Me}\p{Cf}]+$/u;

function segmentWidth(segment: string): number {
  if (zeroWidth.test(segment)) return 0;
  return wide.test(segment) ? 2 : 1;
}

/** Returns the number of terminal columns that a printable line takes. */
export function displayWidth(text: string): number {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length;
  let columns = 0;
  for (const { segment } of segments.segment(text)) columns += segmentWidth(segment);
  return columns;
}

/** Truncates a line that is wider than `maxColumns` to that width. A truncated line ends with "…". */
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

/** Pads a string with spaces to a width of `columns`. */
export function padToWidth(text: string, columns: number, alignRight: boolean): string {
  const spaces = " ".repeat(Math.max(0, columns - displayWidth(text)));
  return alignRight ? `${spaces}${text}` : `${text}${spaces}`;
}
