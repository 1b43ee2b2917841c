import { ConnectionStringError, hidden } from "./error.js";

/** A keyword and its value, neither of them checked. */
export type Pair = readonly [keyword: string, value: string];

/** What C's isspace says of ASCII; other blanks belong to a word. */
const blanks = " \t\n\v\f\r";

/**
 * Takes `key = value key = 'value with blanks'` apart; a backslash takes the meaning from the
 * character behind it.
 *
 * @param check throws for a keyword that must not be there; `shown` is how a message may name it
 * @throws ConnectionStringProblem
 */
export function parseKeyValues(
  text: string,
  check: (keyword: string, shown: string) => void,
): Pair[] {
  const pairs: Pair[] = [];
  let at = skipBlanks(text, 0);
  while (at < text.length) {
    const keyword = readKeyword(text, at);
    // The word may be the rest of a password with a blank in it.
    const shown = pairs.at(-1)?.[0].includes("password") === true ? hidden : keyword;
    at = skipBlanks(text, at + keyword.length);
    if (text[at] !== "=") {
      throw new ConnectionStringError(`missing "=" after "${shown}" in connection info string`);
    }
    const { value, end } = readValue(text, skipBlanks(text, at + 1));
    check(keyword, shown);
    pairs.push([keyword, value]);
    at = skipBlanks(text, end);
  }
  return pairs;
}

/** A value as it stands in a string of key=value pairs. */
export function quoteValue(value: string): string {
  return `'${value.replace(/[\\']/g, "\\$&")}'`;
}

function skipBlanks(text: string, from: number): number {
  let at = from;
  while (at < text.length && isBlank(text, at)) at += 1;
  return at;
}

function isBlank(text: string, at: number): boolean {
  return blanks.includes(text.charAt(at));
}

function readKeyword(text: string, from: number): string {
  let end = from;
  while (end < text.length && text[end] !== "=" && !isBlank(text, end)) end += 1;
  return text.slice(from, end);
}

/** `end` is where to go on. */
function readValue(text: string, from: number): { value: string; end: number } {
  const quoted = text[from] === "'";
  let value = "";
  let at = quoted ? from + 1 : from;
  while (at < text.length) {
    if (quoted ? text[at] === "'" : isBlank(text, at)) return { value, end: at + 1 };
    // A backslash at the very end stands for nothing.
    if (text[at] === "\\") at += 1;
    value += text.charAt(at);
    at += 1;
  }
  if (quoted) {
    throw new ConnectionStringError("unterminated quoted string in connection info string");
  }
  return { value, end: at };
}
