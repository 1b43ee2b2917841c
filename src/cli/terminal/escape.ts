/** What a terminal would act on or be fooled by: control characters, and those that turn the direction of text. */
const hazards = /[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\u{feff}]/gu;
const lone = /\p{Surrogate}/gu;

const short: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

const escaped = (character: string): string => {
  const code = character.codePointAt(0) ?? 0;
  if (code <= 0xff) return short[character] ?? `\\x${code.toString(16).padStart(2, "0")}`;
  return `\\u${code.toString(16).padStart(4, "0")}`;
};

/** A text for one line of a terminal: nothing in it moves the cursor or changes a colour. */
export function printableLine(text: string): string {
  return text.replace(hazards, escaped).replace(lone, "\u{fffd}");
}

/** A text for a terminal that keeps its lines and tabs. */
export function printableText(text: string): string {
  return text
    .replaceAll("\r\n", "\n")
    .replace(hazards, (character) =>
      character === "\n" || character === "\t" ? character : escaped(character),
    )
    .replace(lone, "\u{fffd}");
}

/** A value for one field of a line that programs read, as COPY writes it. */
export function field(text: string | null): string {
  if (text === null) return "\\N";
  return text.replace(/[\\\n\r\t]/g, (character) => short[character] ?? "\\\\");
}
