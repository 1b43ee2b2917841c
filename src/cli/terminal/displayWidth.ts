const segments = new Intl.Segmenter();

/** Letters of East Asian scripts and pictures take two columns of a terminal, accents none. */
const wide =
  /^(?:\p{Emoji_Presentation}|\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Script=Hangul}|[\u3000-\u303f\uff01-\uff60\uffe0-\uffe6])|\u{fe0f}/u;
const none = /^[\p{Mn}\p{Me}\p{Cf}]+$/u;

function columnsOf(segment: string): number {
  if (none.test(segment)) return 0;
  return wide.test(segment) ? 2 : 1;
}

/** How many columns a printable line takes on a terminal. */
export function width(text: string): number {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length;
  let columns = 0;
  for (const { segment } of segments.segment(text)) columns += columnsOf(segment);
  return columns;
}

/** The line's beginning within that many columns, "…" at its end when something is left out. */
export function cut(text: string, most: number): string {
  if (width(text) <= most) return text;
  let kept = "";
  let columns = 0;
  for (const { segment } of segments.segment(text)) {
    const next = columnsOf(segment);
    if (columns + next > most - 1) break;
    kept += segment;
    columns += next;
  }
  return most < 1 ? "" : `${kept}…`;
}

/** Blanks up to that many columns, before the text for numbers. */
export function pad(text: string, columns: number, right: boolean): string {
  const blanks = " ".repeat(Math.max(0, columns - width(text)));
  return right ? `${blanks}${text}` : `${text}${blanks}`;
}
