import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { JsonSyntaxError, parseJson } from "../../../../src/shared/config/parseJson.js";

function problem(text: string): string {
  try {
    parseJson(text);
  } catch (error) {
    if (!(error instanceof JsonSyntaxError)) throw error;
    return error.mistakes.map(({ line, column, message }) => `${line}:${column} ${message}`).join("\n");
  }
  throw new assert.AssertionError({ message: `accepted ${JSON.stringify(text)}` });
}

function outcome(parse: (text: string) => unknown, text: string): unknown {
  try {
    return { value: parse(text) };
  } catch {
    return "refused";
  }
}

void test("skips line comments and counts them in positions", () => {
  const text = '// a\n{ // "b": 1,\r\n"c": // d\r"//", "e": [ // }\n] } // f';
  assert.deepEqual(parseJson(text), { c: "//", e: [] });
  assert.equal(problem("// a\n//\n  x"), "3:3 expected a value");
  assert.equal(problem("[1] / 2"), "1:5 expected the end of the text");
  assert.equal(problem("[1 // ]"), '1:8 expected "," or "]" after the element');
  assert.equal(parseJson("/* a */ 1"), 1);
});

void test("agrees with JSON.parse on text without comments", () => {
  const piece = fc.constantFrom(
    ...'{}[],:"\\-+.0123eE \n\ttrufalsn/'.split(""),
    "true",
    "null",
    '"a"',
    '"b"',
    "1.5e3",
    "-0",
    "01",
    "\\u00e9",
    "\u0001",
  );
  const mutated = fc
    .tuple(fc.json(), fc.nat(), fc.nat({ max: 3 }), fc.array(piece, { maxLength: 2 }))
    .map(([text, at, cut, pieces]) => {
      const start = at % (text.length + 1);
      return text.slice(0, start) + pieces.join("") + text.slice(start + cut);
    });
  const texts = fc.oneof(
    fc.array(piece).map((pieces) => pieces.join("")),
    mutated,
  );
  fc.assert(
    fc.property(texts, (text) => {
      fc.pre(!/\/[/*]/.test(text));
      const expected = outcome(JSON.parse, text);
      const actual = outcome(parseJson, text);
      // Duplicate keys are the only thing that JSON.parse accepts and `parseJson` rejects.
      if (actual === "refused" && expected !== "refused") {
        assert.match(problem(text), /expected each key once/);
      } else assert.deepEqual(actual, expected);
    }),
    { numRuns: 2000 },
  );
});

void test("skips a leading byte order mark and does not count it", () => {
  assert.deepEqual(parseJson('\u{feff}{"a":1}'), { a: 1 });
  assert.equal(problem("\u{feff}x"), "1:1 expected a value");
});

void test("reports a mistake with line, column and what was expected", () => {
  assert.equal(problem(""), "1:1 expected a value");
  assert.equal(problem("\n\n  "), "3:3 expected a value");
  assert.equal(problem('[\n  {"data": "a"}\n  {"data": "b"}\n]'), '3:3 expected "," after the value');
  assert.equal(problem('{\r\n"a" 1}'), '2:5 expected ":" after the key');
  assert.equal(problem('{"a": 1,}'), "1:9 expected a key in double quotes, got a trailing comma: remove it");
  assert.equal(problem("[1, // ]\n/* , */ ]"), "2:9 expected a value, got a trailing comma: remove it");
  assert.equal(problem("[1, }"), "1:5 expected a value, got a trailing comma: remove it");
  assert.equal(problem("[1,,2]"), "1:4 expected a value");
  assert.equal(problem("{a: 1}"), "1:2 expected a key in double quotes");
  assert.equal(problem('["abc'), "1:2 expected a closing quote for this string");
  assert.equal(problem('["\\x"]'), '1:2 expected one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX in this string');
  assert.equal(problem("[1] 2"), "1:5 expected the end of the text");
});

void test("reports a word without quotes as the key or value that it stands for", () => {
  assert.equal(problem("{bad"), "1:2 expected a key in double quotes");
  assert.equal(problem("{bad}"), "1:2 expected a key in double quotes");
  assert.equal(problem('{"a": 1, bad\n "b": 2}'), "1:10 expected a key in double quotes");
  assert.equal(problem('{"a": nope}'), "1:7 expected a value");
  assert.equal(problem("[nope]"), "1:2 expected a value");
  assert.equal(problem('{"a" nope}'), '1:6 expected ":" after the key');
});

void test("reports mistakes in other lines that do not follow from an earlier one", () => {
  assert.equal(
    problem('{bad\n "a": 0,\n "b": tru,\n "c": "\\x",\n d: 1\n}'),
    [
      "1:2 expected a key in double quotes",
      "3:7 expected a value",
      '4:7 expected one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX in this string',
      "5:2 expected a key in double quotes",
    ].join("\n"),
  );
  // The closing bracket is missing, and everything after it is read as part of the array.
  assert.equal(problem('{"a": [1,\n "b": 2,\n "c": 3}'), '2:5 expected "," after the value');
  assert.equal(problem("[a,\n b,\n c,\n d,\n e,\n f]").split("\n").length, 5);
});

void test("reports a duplicate key at its second occurrence", () => {
  assert.equal(problem('{"a": 1,\n "b": {"a": 2},\n "a": 3}'), '3:2 expected each key once, got "a" again');
});

void test("never quotes words of the text", () => {
  assert.doesNotMatch(problem('{"password": hunter2}'), /hunter2/);
  assert.doesNotMatch(problem('{"password": "hunter2'), /hunter2/);
});

void test("rejects nesting that could exhaust the stack", () => {
  assert.match(problem("[".repeat(100_000)), /at most 100 levels/);
});
