/**
 * Arrays as PostgreSQL writes them, for parameters of many elements: pg's own way looks at the type of
 * each anew.
 */

/** Of elements that need no quotes: numbers and times. */
export function arrayOf(elements: readonly (string | number | null)[]): string {
  return `{${elements.map((element) => element ?? "NULL").join(",")}}`;
}

/** Of any text. */
export function textArrayOf(elements: readonly (string | null)[]): string {
  return `{${elements.map(quoted).join(",")}}`;
}

function quoted(text: string | null): string {
  if (text === null) return "NULL";
  return `"${/["\\]/.test(text) ? text.replaceAll(/["\\]/g, String.raw`\$&`) : text}"`;
}
