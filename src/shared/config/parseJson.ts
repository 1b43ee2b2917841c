import { getLocation, parseTree, printParseErrorCode, type Node, type ParseError } from "jsonc-parser";

/** Line and column are counted from 1. */
interface Mistake {
  readonly message: string;
  readonly line: number;
  readonly column: number;
}

export class JsonSyntaxError extends Error {
  readonly mistakes: readonly Mistake[];

  constructor(mistakes: readonly Mistake[]) {
    super(mistakes.map(({ message }) => message).join("; "));
    this.name = "JsonSyntaxError";
    this.mistakes = mistakes;
  }

  /** Returns one line for each mistake in the file. */
  describe(file: string): string {
    const lines = this.mistakes.map(({ line, column, message }) => `${file}:${line}:${column}: not JSON: ${message}`);
    return lines.join("\n");
  }
}

/** Deeper nesting could exhaust the stack. */
const maxDepth = 100;

const expectations: Readonly<Record<string, string>> = {
  InvalidNumberFormat: "a number",
  PropertyNameExpected: "a key in double quotes",
  ValueExpected: "a value",
  ColonExpected: '":" after the key',
  CommaExpected: '"," after the value',
  CloseBraceExpected: '"," or "}" after the value',
  CloseBracketExpected: '"," or "]" after the element',
  EndOfFileExpected: "the end of the text",
  InvalidCommentToken: "no comment",
  UnexpectedEndOfComment: "the end of the comment",
  UnexpectedEndOfString: "a closing quote for this string",
  UnexpectedEndOfNumber: "a digit",
  InvalidUnicode: "four hexadecimal digits after \\u",
  InvalidEscapeCharacter: 'one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX in this string',
  InvalidCharacter: "no control character in this string",
};

/** Mistakes in a single word or character. Others may only follow from the mistake before. */
const isCertain = /^Invalid|^UnexpectedEndOf/;
const maxMistakes = 5;

const trailingComma = /,(?:\s|\/\/[^\r\n]*[\r\n]|\/\*[^]*?\*\/)*$/;

/**
 * JSON.parse is not used, because its messages differ between Node versions and can repeat part of a password, and
 * because it accepts duplicate keys.
 *
 * @throws JsonSyntaxError that never repeats a value of the text
 */
export function parseJson(given: string): unknown {
  const text = given.replace(/^\u{feff}/u, "");
  const placeOf = (offset: number): Omit<Mistake, "message"> => {
    const lines = text.slice(0, offset).split(/\r\n|\r|\n/);
    return { line: lines.length, column: (lines.at(-1) ?? "").length + 1 };
  };
  const fail = (message: string, offset: number): never => {
    throw new JsonSyntaxError([{ message, ...placeOf(offset) }]);
  };
  const tooDeep = (offset: number): never => fail(`expected at most ${maxDepth} levels of nesting`, offset);
  const toValue = ({ type, value, offset, children = [] }: Node, depth = 0): unknown => {
    if (depth > maxDepth) tooDeep(offset);
    if (type === "array") return children.map((child) => toValue(child, depth + 1));
    if (type !== "object") return value;
    const entries = new Map<string, unknown>();
    for (const { children: [key, member] = [] } of children) {
      if (key === undefined || member === undefined) continue;
      if (entries.has(key.value)) fail(`expected each key once, got ${JSON.stringify(key.value)} again`, key.offset);
      entries.set(key.value, toValue(member, depth + 1));
    }
    return Object.fromEntries(entries);
  };

  const errors: ParseError[] = [];
  let root: Node | undefined;
  try {
    root = parseTree(text, errors);
  } catch (error) {
    if (error instanceof RangeError) return tooDeep(0);
    throw error;
  }
  const mistakes: Mistake[] = [];
  for (const [index, error] of errors.entries()) {
    if (mistakes.length === maxMistakes) break;
    if (mistakes.length > 0 && !isCertain.test(printParseErrorCode(error.error))) continue;
    const place = placeOf(error.offset);
    if (place.line === mistakes.at(-1)?.line) continue;
    mistakes.push({ message: describe(text, error, errors[index + 1]), ...place });
  }
  if (mistakes.length > 0) throw new JsonSyntaxError(mistakes);
  return root === undefined ? fail("expected a value", text.length) : toValue(root);
}

function describe(text: string, error: ParseError, next: ParseError | undefined): string {
  const { offset } = error;
  const code = expectedAt(text, error, next);
  const comma = trailingComma.test(text.slice(0, offset)) && /^[}\]]/.test(text.slice(offset));
  return `expected ${expectations[code] ?? code}${comma ? ", got a trailing comma: remove it" : ""}`;
}

/** An invalid symbol is often followed by a second error, which names what was expected in place of that symbol. */
function expectedAt(text: string, { error, offset }: ParseError, next: ParseError | undefined): string {
  const code = printParseErrorCode(error);
  if (code !== "InvalidSymbol") return code;
  const { isAtPropertyKey, path } = getLocation(text, offset);
  if (isAtPropertyKey && path.at(-1) === "") return "PropertyNameExpected";
  const following = next === undefined ? code : printParseErrorCode(next.error);
  return following === code ? "ValueExpected" : following;
}
