/**
 * Formats array literals for query parameters with many elements, because the pg driver would inspect the type of each
 * element.
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
