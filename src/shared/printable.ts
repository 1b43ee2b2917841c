/** Control characters and bidirectional marks, which could make a terminal or browser show misleading text. */
const unsafeCharacters = /[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\u{feff}]/gu;
const loneSurrogates = /\p{Surrogate}/gu;

const shortEscapes: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

const escapeCharacter = (character: string): string => {
  const code = character.codePointAt(0) ?? 0;
  if (code <= 0xff) return shortEscapes[character] ?? `\\x${code.toString(16).padStart(2, "0")}`;
  return `\\u${code.toString(16).padStart(4, "0")}`;
};

/** Escapes a string so that it fits on one line and changes neither a terminal's state nor how other text is shown. */
export function printableLine(text: string): string {
  return text.replace(unsafeCharacters, escapeCharacter).replace(loneSurrogates, "\u{fffd}");
}

export const quotedLine = (text: string): string => `"${printableLine(text.replace(/["\\]/g, "\\$&"))}"`;

const unicodeEscape = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** Returns a value as JSON in which such characters are escaped. */
export const jsonText = (value: unknown, indent = 2): string =>
  JSON.stringify(value, null, indent).replace(unsafeCharacters, (character) =>
    character === "\n" ? character : unicodeEscape(character),
  );

/** Escapes such characters in the strings of a line of JSON so that they are still escaped when it has been parsed. */
export const printableJson = (line: string): string =>
  line
    .replace(/(?<!\\)((?:\\\\)*)\\u00([01][0-9a-f])/g, "$1\\\\x$2")
    .replace(unsafeCharacters, (character) => (character === "\n" ? character : `\\${unicodeEscape(character)}`));

/** Like `printableLine`, but keeps line feeds and tabs. */
export function printableText(text: string): string {
  return text
    .replaceAll("\r\n", "\n")
    .replace(unsafeCharacters, (character) =>
      character === "\n" || character === "\t" ? character : escapeCharacter(character),
    )
    .replace(loneSurrogates, "\u{fffd}");
}
