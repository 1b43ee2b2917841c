/**
 * A word as it stands on bash's command line, before bash has removed the quotes. The last quotation mark may still be
 * open.
 */
export interface BashWord {
  /** The text without its quotes. */
  readonly text: string;
  /**
   * The text up to the last quotation mark, or up to a character at which readline splits words, such as a colon, if it
   * comes later. Readline keeps this part of the word and replaces the rest.
   */
  readonly kept: string;
  /** The quotation mark that is still open, or an empty string. */
  readonly quote: "" | "'" | '"';
}

/**
 * Reads a word of bash's command line without expanding anything in it.
 *
 * @param from where the part begins that readline may replace
 */
export function readBashWord(word: string, from = 0): BashWord {
  let text = "";
  let kept = "";
  let quote: BashWord["quote"] = "";
  for (let position = 0; position < word.length; position += 1) {
    const character = word.charAt(position);
    const next = word.charAt(position + 1);
    if (position === from) kept = text;
    if (character === quote || (quote === "" && (character === "'" || character === '"'))) {
      quote = quote === "" ? character : "";
      kept = text;
    } else if (character === "\\" && (quote === "" || (quote === '"' && /[\\$"`]/.test(next)))) {
      text += next;
      position += 1;
    } else text += character;
  }
  if (from === word.length) kept = text;
  return { text, kept, quote };
}

/** Returns what replaces a word that is to become `value`, which begins with the word's text. */
export function replaceBashWord({ kept, quote }: BashWord, value: string): string {
  const rest = value.slice(kept.length);
  if (quote === "") {
    return control.test(rest) ? ansiQuoted(rest) : rest.replace(/[^\w./%+,\u0080-\uffff-]/g, String.raw`\$&`);
  }
  // What the quotes cannot hold follows outside of them. Within double quotes, bash also expands the history (`!`).
  const outside = (text: string): string => quote + (control.test(text) ? ansiQuoted(text) : `\\${text}`) + quote;
  const escaped = quote === "'" ? rest : rest.replace(/[\\$"`]/g, String.raw`\$&`);
  // Readline closes the quotes itself, but not after a value that ends with such a mark.
  return escaped.replace(new RegExp(`${quote === "'" ? "'" : "!"}|${control.source}`, "gu"), outside) + quote;
}

/** Matches an ASCII control character. */
const control = /[^\P{Cc}\u0080-\u009f]/u;

const octal = (character: string): string => `\\${character.charCodeAt(0).toString(8).padStart(3, "0")}`;

/** Quotes a text in the form for control characters, such as `$'a\012b'`. */
const ansiQuoted = (text: string): string =>
  `$'${text.replace(/[\\']/g, String.raw`\$&`).replace(new RegExp(control, "gu"), octal)}'`;
