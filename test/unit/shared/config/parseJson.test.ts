import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { JsonProblem, parseJson } from "../../../../src/shared/config/parseJson.js";

function problem(text: string): string {
  try {
    parseJson(text);
  } catch (error) {
    if (!(error instanceof JsonProblem)) throw error;
    return `${error.line}:${error.column} ${error.message}`;
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

void test("what JSON.stringify writes is read as it was", () => {
  fc.assert(
    fc.property(fc.json(), fc.constantFrom(0, 2, "\t"), (text, indent) => {
      const value: unknown = JSON.parse(text);
      assert.deepEqual(parseJson(JSON.stringify(value, null, indent)), value);
    }),
  );
});

void test("comments from two slashes to the end of the line are passed over, and counted", () => {
  const text = '// a\n{ // "b": 1,\r\n"c": // d\r"//", "e": [ // }\n] } // f';
  assert.deepEqual(parseJson(text), { c: "//", e: [] });
  assert.equal(problem("// a\n//\n  x"), "3:3 expected a value, got a word or number");
  assert.equal(problem("[1] / 2"), '1:5 expected nothing more, got "/"');
  assert.equal(
    problem("[1 // ]"),
    '1:8 expected "," or "]" after the element, got the end of the text',
  );
  assert.equal(problem("/* a */ 1"), '1:1 expected a value, got "/"');
});

void test("text without comments is accepted exactly when JSON.parse accepts it, with the same value", () => {
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
      const place = at % (text.length + 1);
      return text.slice(0, place) + pieces.join("") + text.slice(place + cut);
    });
  const texts = fc.oneof(
    fc.array(piece).map((pieces) => pieces.join("")),
    mutated,
  );
  fc.assert(
    fc.property(texts, (text) => {
      fc.pre(!text.includes("//"));
      const expected = outcome(JSON.parse, text);
      const actual = outcome(parseJson, text);
      // A key that stands twice is the one thing JSON.parse lets pass.
      if (actual === "refused" && expected !== "refused") {
        assert.match(problem(text), /expected each key once/);
      } else assert.deepEqual(actual, expected);
    }),
    { numRuns: 2000 },
  );
});

void test("a byte order mark in front is passed over and not counted", () => {
  assert.deepEqual(parseJson('\u{feff}{"a":1}'), { a: 1 });
  assert.equal(problem("\u{feff}x"), "1:1 expected a value, got a word or number");
});

void test("a mistake is named with line, column and what was expected", () => {
  assert.equal(problem(""), "1:1 expected a value, got the end of the text");
  assert.equal(problem("\n\n  "), "3:3 expected a value, got the end of the text");
  assert.equal(
    problem('[\n  {"data": "a"}\n  {"data": "b"}\n]'),
    '3:3 expected "," or "]" after the element, got "{"',
  );
  assert.equal(problem('{\r\n"a" 1}'), '2:5 expected ":" after the key, got a word or number');
  assert.equal(problem('{"a": 1,}'), '1:9 expected a key in double quotes, got "}"');
  assert.equal(
    problem("{a: 1}"),
    '1:2 expected a key in double quotes or "}", got a word or number',
  );
  assert.equal(problem('["abc'), "1:2 expected a closing quote for this string");
  assert.equal(problem('["\\x"]'), '1:3 expected one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX');
  assert.equal(problem("[1] 2"), "1:5 expected nothing more, got a word or number");
});

void test("a key that stands twice is named at its second place", () => {
  assert.equal(
    problem('{"a": 1,\n "b": {"a": 2},\n "a": 3}'),
    '3:2 expected each key once, got "a" again',
  );
});

void test("words of the text are never repeated", () => {
  assert.doesNotMatch(problem('{"password": hunter2}'), /hunter2/);
  assert.doesNotMatch(problem('{"password": "hunter2'), /hunter2/);
});

void test("a nesting that could exhaust the stack is refused", () => {
  assert.match(problem("[".repeat(100_000)), /at most 100 levels/);
});
