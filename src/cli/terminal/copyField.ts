const escapes: Readonly<Record<string, string>> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** Encodes a value as a field in the text format of COPY. */
export function copyField(text: string | null): string {
  if (text === null) return "\\N";
  return text.replace(/[\\\n\r\t]/g, (character) => escapes[character] ?? character);
}
