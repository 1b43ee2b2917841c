/**
 * Formats array literals for query parameters with many elements. The pg driver could format the arrays, but it would
 * inspect the type of each element, which takes longer.
 */

/** Formats elements that need no quotes, such as numbers and timestamps. */
export function arrayLiteral(elements: readonly (string | number | null)[]): string {
  return `{${elements.map((element) => element ?? "NULL").join(",")}}`;
}

/** Formats elements of any text. */
export function textArrayLiteral(elements: readonly (string | null)[]): string {
  return `{${elements.map(quoted).join(",")}}`;
}

function quoted(text: string | null): string {
  if (text === null) return "NULL";
  return `"${/["\\]/.test(text) ? text.replaceAll(/["\\]/g, String.raw`\$&`) : text}"`;
}
