import type { Parameters } from "../../shared/postgres/protocol/encode.js";
import { commentLength } from "./classifyInput.js";

const jsonb = 3802;

/**
 * The values of an array become `$1`, `$2` and so on, with types that the server infers. An object becomes `$1` with
 * the type jsonb, because an operator such as `->>` does not tell which of the two JSON types its operand has. Returns
 * null if the input has no parameters.
 */
export function inputParameters(input: string, args: string): Parameters | null {
  if (!hasParameter(input)) return null;
  return args.startsWith("[") ? { values: elementsOf(args), types: [] } : { values: [args], types: [jsonb] };
}

/** Matches a parameter, and the beginning of all that may contain the same characters without meaning a parameter. */
const tokens =
  /(?<parameter>\$\d)|--|\/\*|(?<escapes>e')|['"]|\$(?:[a-z_\x80-\uffff][\w\x80-\uffff]*)?\$|[a-z_\x80-\uffff][\w$\x80-\uffff]*/giu;

export function hasParameter(input: string): boolean {
  tokens.lastIndex = 0;
  for (;;) {
    const match = tokens.exec(input);
    if (match === null) return false;
    if (match.groups?.["parameter"] !== undefined) return true;
    tokens.lastIndex = endOfToken(input, match[0], match.index);
  }
}

function endOfToken(input: string, opening: string, start: number): number {
  const from = start + opening.length;
  switch (opening) {
    case "--":
      return endOfLine(input, from);
    case "/*":
      return start + commentLength(input.slice(start));
    case "'":
    case '"':
      return behind(input, opening, from);
    case "e'":
    case "E'":
      return endOfEscaped(input, "'", from);
    default:
      return opening.startsWith("$") ? behind(input, opening, from) : from;
  }
}

function endOfLine(input: string, from: number): number {
  const length = input.slice(from).search(/[\n\r]/);
  return length < 0 ? input.length : from + length;
}

/** A quote that is written twice looks like two strings, which does no harm. */
function behind(input: string, text: string, from: number): number {
  const index = input.indexOf(text, from);
  return index < 0 ? input.length : index + text.length;
}

/** Returns the offset behind a string that this quote ends, and in which a backslash escapes the next character. */
function endOfEscaped(text: string, quote: string, from: number): number {
  let index = from;
  while (index < text.length && text[index] !== quote) index += text[index] === "\\" ? 2 : 1;
  return index + 1;
}

/** Like `jsonb_array_elements_text`. Numbers are not parsed, so they keep all digits. */
export function elementsOf(array: string): (string | null)[] {
  const elements: (string | null)[] = [];
  let depth = 0;
  let start = 1;
  for (let index = 0; index < array.length; index += 1) {
    const character = array[index];
    if (character === '"') index = endOfEscaped(array, '"', index + 1) - 1;
    else if (character === "[" || character === "{") depth += 1;
    else if (character === "]" || character === "}") depth -= 1;
    if ((depth === 1 && character === ",") || depth === 0) {
      const text = array.slice(start, index).trim();
      if (text !== "") elements.push(valueOf(text));
      start = index + 1;
    }
  }
  return elements;
}

function valueOf(text: string): string | null {
  if (text === "null") return null;
  return text.startsWith('"') ? String(JSON.parse(text)) : text;
}
