import { ConnectionStringError } from "../errors.js";
import { mask } from "../../logRedaction.js";
import { isKeyword, type Pair } from "./keywords.js";
import { shownKeyword } from "./mayShow.js";

/** The ASCII characters that C's `isspace` accepts. */
const whitespace = " \t\n\v\f\r";

/** Parses `key = value key = 'value with spaces'`. `check` throws for an unknown keyword, shown as `shown`. */
export function parseKeyValues(text: string, check: (keyword: string, shown: string) => void): Pair[] {
  const pairs: Pair[] = [];
  let position = skipWhitespace(text, 0);
  while (position < text.length) {
    const keyword = readKeyword(text, position);
    const shown = shownKeyword(keyword, pairs);
    position = skipWhitespace(text, position + keyword.length);
    if (text[position] !== "=") {
      throw new ConnectionStringError(
        `missing "=" after "${isKeyword(keyword) ? shown : mask}" in connection info string`,
      );
    }
    const { value, end } = readValue(text, skipWhitespace(text, position + 1));
    check(keyword, shown);
    pairs.push([keyword, value]);
    position = skipWhitespace(text, end);
  }
  return pairs;
}

export function quoteValue(value: string): string {
  return `'${value.replace(/[\\']/g, "\\$&")}'`;
}

function skipWhitespace(text: string, from: number): number {
  let position = from;
  while (position < text.length && isWhitespace(text, position)) position += 1;
  return position;
}

function isWhitespace(text: string, position: number): boolean {
  return whitespace.includes(text.charAt(position));
}

function readKeyword(text: string, from: number): string {
  let end = from;
  while (end < text.length && text[end] !== "=" && !isWhitespace(text, end)) end += 1;
  return text.slice(from, end);
}

/** `end` is the position at which parsing continues. */
function readValue(text: string, from: number): { value: string; end: number } {
  const quoted = text[from] === "'";
  let value = "";
  let position = quoted ? from + 1 : from;
  while (position < text.length) {
    const ends = quoted ? text[position] === "'" : isWhitespace(text, position);
    if (ends) return { value, end: position + 1 };
    // A backslash at the very end of the string is dropped.
    if (text[position] === "\\") position += 1;
    value += text.charAt(position);
    position += 1;
  }
  if (quoted) {
    throw new ConnectionStringError("unterminated quoted string in connection info string");
  }
  return { value, end: position };
}
