import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { formatError, formatOwnError } from "../../../../src/executor/run/formatError.js";

const base = { severity: "ERROR", code: "XX000", message: "what" };

test("each field has its own line, in the server log's order, the input last", () => {
  const text = formatError(
    {
      ...base,
      where: "context",
      internalQuery: "query",
      hint: "hint",
      detail: "detail",
      internalPosition: "7",
    },
    "input",
  );
  assert.equal(
    text,
    "ERROR:  what at character 7\nDETAIL:  detail\nHINT:  hint\nQUERY:  query\nCONTEXT:  context\nSTATEMENT:  input",
  );
});

test("a position in the input takes precedence over one in an internal query", () => {
  const text = formatError({ ...base, position: "3", internalPosition: "7" }, "input");
  assert.equal(text, "ERROR:  what at character 3\nSTATEMENT:  input");
});

test("an empty input still has its line", () => {
  assert.equal(formatOwnError("own", ""), "ERROR:  own\nSTATEMENT:  ");
});

test("only labels begin a line without a tab, whatever the texts contain", () => {
  const text = fc.string({ unit: fc.constantFrom("a", "\n", "\t", ":", "\r", " ") });
  fc.assert(
    fc.property(text, text, text, text, (message, detail, where, input) => {
      const labels = formatError({ ...base, message, detail, where }, input)
        .split("\n")
        .filter((line) => !line.startsWith("\t"))
        .map((line) => line.slice(0, line.indexOf(":")));
      assert.deepEqual(labels, ["ERROR", "DETAIL", "CONTEXT", "STATEMENT"]);
    }),
  );
});
