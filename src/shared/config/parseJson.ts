import { parseTree, printParseErrorCode, type Node, type ParseError } from "jsonc-parser";

/** Line and column are counted from 1. */
export class JsonSyntaxError extends Error {
  readonly line: number;
  readonly column: number;

  constructor(message: string, line: number, column: number) {
    super(message);
    this.name = "JsonSyntaxError";
    this.line = line;
    this.column = column;
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

const trailingComma = /,(?:\s|\/\/[^\r\n]*[\r\n]|\/\*[^]*?\*\/)*$/;

/**
 * JSON.parse is not used, because its messages differ between Node versions and can repeat part of a password, and
 * because it accepts duplicate keys.
 *
 * @throws JsonSyntaxError that never repeats a value of the text
 */
export function parseJson(given: string): unknown {
  const text = given.replace(/^\u{feff}/u, "");
  const fail = (message: string, offset: number): never => {
    const lines = text.slice(0, offset).split(/\r\n|\r|\n/);
    throw new JsonSyntaxError(message, lines.length, (lines.at(-1) ?? "").length + 1);
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
  const [first, ...others] = errors;
  if (first !== undefined) {
    // An invalid symbol is followed by a second error, which names what was expected in place of that symbol.
    const codes = [first, ...others].map(({ error }) => printParseErrorCode(error));
    const code = codes.find((name) => name !== "InvalidSymbol") ?? "ValueExpected";
    const comma = trailingComma.test(text.slice(0, first.offset)) && /^[}\]]/.test(text.slice(first.offset));
    fail(`expected ${expectations[code] ?? code}${comma ? ", got a trailing comma: remove it" : ""}`, first.offset);
  }
  return root === undefined ? fail("expected a value", text.length) : toValue(root);
}
