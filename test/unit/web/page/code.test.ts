import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as fc from "fast-check";
import { isJson, jsonTokens, sqlTokens, type Token } from "../../../../src/web/page/code.js";

const shown = (tokens: readonly Token[]): string =>
  tokens.map(({ kind, text }) => (kind === "plain" ? text : `[${kind} ${text}]`)).join("");

void describe("SQL is split as PostgreSQL splits it", () => {
  for (const [sql, expected] of [
    ["SELECT 1", "[keyword SELECT] [number 1]"],
    ["select selects, a1 from b", "[keyword select] selects, a1 [keyword from] b"],
    ["'it''s' 'a\\' x", "[string 'it''s'] [string 'a\\'] x"],
    ["E'it\\'s' || e'\\\\'", "[string E'it\\'s'] || [string e'\\\\']"],
    ["name'x'", "name[string 'x']"],
    ['U&\'d\\0061t\' U&"d" "a""b"', '[string U&\'d\\0061t\'] [name U&"d"] [name "a""b"]'],
    ["DO $$ it's $a$ fine $$ end", "[keyword DO] [string $$ it's $a$ fine $$] [keyword end]"],
    ["$tag$ $$ ' $tag$ + $1 + a$b$", "[string $tag$ $$ ' $tag$] + [number $1] + a$b$"],
    ["/* a /* b */ ' */ 1 -- '\n2", "[comment /* a /* b */ ' */] [number 1] [comment -- ']\n[number 2]"],
    ["1.5e-3 .5 0xFF 1_000 x2", "[number 1.5e-3] [number .5] [number 0xFF] [number 1_000] x2"],
    ["'open", "[string 'open]"],
    ["/* open", "[comment /* open]"],
    ["$$ open", "[string $$ open]"],
    ["größe 'ß'", "größe [string 'ß']"],
  ] as const) {
    void test(sql, () => assert.equal(shown(sqlTokens(sql)), expected));
  }
});

void test("JSON is split into names and values", () => {
  assert.equal(
    shown(jsonTokens('{"a\\"": [1.5e3, "b:", true, null, -2]}')),
    '{[name "a\\""]: [[number 1.5e3], [string "b:"], [keyword true], [keyword null], [number -2]]}',
  );
});

void test("a JSON object or array counts as JSON, any other text does not", () => {
  assert.deepEqual(['{"a":1}', " [1]", "1", '"a"', "{a}", "[1", ""].map(isJson), [true, true, ...Array(5).fill(false)]);
});

void test("no text gets lost", () => {
  const piece = fc.constantFrom(
    "'",
    '"',
    "$$",
    "$a$",
    "/*",
    "*/",
    "--",
    "\n",
    "E'",
    "\\",
    "1",
    ".",
    "e",
    "select",
    " ",
  );
  const text = fc.array(fc.oneof(piece, fc.string({ unit: "grapheme" }))).map((pieces) => pieces.join(""));
  fc.assert(
    fc.property(text, (each) => {
      for (const tokens of [sqlTokens(each), jsonTokens(each)]) {
        assert.equal(tokens.map((token) => token.text).join(""), each);
      }
    }),
  );
});
