/** Formats an array literal of elements that need no quotes. The driver would inspect the type of each element. */
export function arrayLiteral(elements: readonly (string | number | null)[]): string {
  return `{${elements.map((element) => element ?? "NULL").join(",")}}`;
}

export function textArrayLiteral(elements: readonly (string | null)[]): string {
  return `{${elements.map(quoted).join(",")}}`;
}

function quoted(text: string | null): string {
  if (text === null) return "NULL";
  return `"${/["\\]/.test(text) ? text.replaceAll(/["\\]/g, String.raw`\$&`) : text}"`;
}
