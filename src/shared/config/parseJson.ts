/** Why a text is not JSON, and where: line and column count from 1. */
export class JsonProblem extends Error {
  readonly line: number;
  readonly column: number;

  constructor(message: string, line: number, column: number) {
    super(message);
    this.name = "JsonProblem";
    this.line = line;
    this.column = column;
  }
}

const escapes: Readonly<Record<string, string>> = {
  '"': '"',
  "\\": "\\",
  "/": "/",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
};

const numberPattern = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const wordPattern = /[\p{L}\p{N}_$.+-]+/uy;
/** Blanks, and comments from two slashes to the end of the line. */
const blankPattern = /(?:[ \t\r\n]|\/\/[^\r\n]*)*/y;
const deepest = 100;

/**
 * Reads JSON as JSON.parse does, a leading byte order mark and comments (`// …`) aside. Own code, since what JSON.parse
 * says about a mistake differs from one Node to the next, and it takes the last of equal keys
 * where here the second one is a mistake.
 *
 * @throws JsonProblem saying what was expected where. It never repeats words of the text: they may
 * be part of a password.
 */
export function parseJson(text: string): unknown {
  let at = text.startsWith("\u{feff}") ? 1 : 0;

  const fail = (message: string, where = at): never => {
    const before = text.slice(0, where).replace(/^\u{feff}/u, "");
    const lines = before.split(/\r\n|\r|\n/);
    throw new JsonProblem(message, lines.length, (lines.at(-1) ?? "").length + 1);
  };

  const found = (): string => {
    const char = text[at];
    if (char === undefined) return "the end of the text";
    wordPattern.lastIndex = at;
    if (wordPattern.test(text)) return "a word or number";
    return char === '"' ? "a string" : JSON.stringify(char);
  };

  const expected = (what: string): never => fail(`expected ${what}, got ${found()}`);

  const blanks = (): void => {
    blankPattern.lastIndex = at;
    at += blankPattern.exec(text)?.[0].length ?? 0;
  };

  const take = (char: string): boolean => {
    blanks();
    if (text[at] !== char) return false;
    at += 1;
    return true;
  };

  const escaped = (): string => {
    const start = at;
    const letter = text[at + 1] ?? "";
    const simple = escapes[letter];
    if (simple !== undefined) {
      at += 2;
      return simple;
    }
    const hex = /^[0-9a-fA-F]{4}$/.exec(letter === "u" ? text.slice(at + 2, at + 6) : "");
    if (hex === null)
      return fail('expected one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX', start);
    at += 6;
    return String.fromCharCode(Number.parseInt(hex[0], 16));
  };

  const string = (): string => {
    const start = at;
    at += 1;
    let value = "";
    for (;;) {
      const char = text[at];
      if (char === undefined) return fail("expected a closing quote for this string", start);
      if (char === '"') break;
      if (char < " ") return fail("expected a closing quote before the end of the line");
      if (char === "\\") value += escaped();
      else {
        value += char;
        at += 1;
      }
    }
    at += 1;
    return value;
  };

  const object = (depth: number): Record<string, unknown> => {
    const entries = new Map<string, unknown>();
    at += 1;
    if (take("}")) return {};
    for (;;) {
      blanks();
      const keyAt = at;
      if (text[at] !== '"') {
        return expected(
          entries.size === 0 ? 'a key in double quotes or "}"' : "a key in double quotes",
        );
      }
      const key = string();
      if (entries.has(key)) {
        return fail(`expected each key once, got ${JSON.stringify(key)} again`, keyAt);
      }
      if (!take(":")) return expected('":" after the key');
      entries.set(key, value(depth + 1));
      if (take("}")) break;
      if (!take(",")) return expected('"," or "}" after the value');
    }
    return Object.fromEntries(entries);
  };

  const array = (depth: number): unknown[] => {
    const elements: unknown[] = [];
    at += 1;
    if (take("]")) return elements;
    for (;;) {
      elements.push(value(depth + 1));
      if (take("]")) return elements;
      if (!take(",")) return expected('"," or "]" after the element');
    }
  };

  const value = (depth: number): unknown => {
    if (depth > deepest) return fail(`expected at most ${deepest} levels of nesting`);
    blanks();
    const char = text[at];
    if (char === "{") return object(depth);
    if (char === "[") return array(depth);
    if (char === '"') return string();
    return scalar();
  };

  const scalar = (): unknown => {
    wordPattern.lastIndex = at;
    const word = wordPattern.exec(text)?.[0] ?? "";
    const words: Readonly<Record<string, unknown>> = { true: true, false: false, null: null };
    if (Object.hasOwn(words, word)) {
      at += word.length;
      return words[word];
    }
    numberPattern.lastIndex = at;
    if (numberPattern.exec(text)?.[0] !== word || word === "") return expected("a value");
    at += word.length;
    return Number(word);
  };

  const result = value(0);
  blanks();
  if (at < text.length) return expected("nothing more");
  return result;
}
