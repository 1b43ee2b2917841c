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

/** Like `printableLine`, but keeps line feeds and tabs. */
export function printableText(text: string): string {
  return text
    .replaceAll("\r\n", "\n")
    .replace(unsafeCharacters, (character) =>
      character === "\n" || character === "\t" ? character : escapeCharacter(character),
    )
    .replace(loneSurrogates, "\u{fffd}");
}
