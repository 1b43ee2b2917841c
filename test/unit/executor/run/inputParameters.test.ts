import assert from "node:assert/strict";
import { test } from "node:test";
import { elementsOf, hasParameter, inputParameters } from "../../../../src/executor/run/inputParameters.js";

test("recognizes parameters", () => {
  for (const input of [
    "SELECT $1",
    "SELECT f($2, $1)",
    "SELECT 'it''s', $1",
    "SELECT '$x', $1",
    'SELECT "a$1" + $1',
    "SELECT $$it's$$, $1",
    "SELECT $a$ $b$ $a$, $1",
    "SELECT E'it\\'s', $1",
    "SELECT E'\\\\', $1",
    "SELECT name'\\', $1",
    "SELECT U&'\\0041', $1",
    "-- it's\nSELECT $1",
    "-- it's\rSELECT $1",
    "/* it's /* \" */ $$ */ SELECT $1",
    "SELECT 1-$1",
    "SELECT $äö$'$äö$, $1",
  ]) {
    assert.equal(hasParameter(input), true, input);
  }
});

test("does not take for a parameter what is in a string, a name or a comment", () => {
  for (const input of [
    "",
    "SELECT 1",
    "SELECT '$1'",
    "SELECT 'it''s $1'",
    "SELECT E'it\\'s $1'",
    "SELECT e'\\\\\\' $1'",
    'SELECT "$1", "a""$1"',
    "SELECT a$1, ä$1, _$1",
    "SELECT $$ $1 $$",
    "SELECT $a$ $$ $1 $$ $a$",
    "-- $1",
    "/* $1 */",
    "/* /* */ $1 */",
    "/* $1",
    "'$1",
    "$$ $1",
    "E'$1\\",
  ]) {
    assert.equal(hasParameter(input), false, input);
  }
});

test("the elements of an array are those of jsonb_array_elements_text", () => {
  assert.deepEqual(
    elementsOf(
      String.raw`["a, b]", "", "\"q\\", "\u00e4\n", null, "null", true, 12345678901234567890.10, [1, ["x"]], {"a": "}"}]`,
    ),
    ["a, b]", "", '"q\\', "ä\n", null, "null", "true", "12345678901234567890.10", '[1, ["x"]]', '{"a": "}"}'],
  );
  assert.deepEqual(elementsOf("[]"), []);
  assert.deepEqual(elementsOf("[[]]"), ["[]"]);
});

test("an object is one parameter of type jsonb", () => {
  assert.deepEqual(inputParameters("SELECT $1", '{"a": 1}'), { values: ['{"a": 1}'], types: [3802] });
  assert.deepEqual(inputParameters("SELECT $1", '["a"]'), { values: ["a"], types: [] });
  assert.equal(inputParameters("SELECT 1", '["a"]'), null);
});
