import assert from "node:assert/strict";
import { test } from "node:test";
import { ruleQueryResult } from "../../../../src/manager/results/ruleQueryResult.js";
import type { RunResult } from "../../../../src/shared/ipc/run.js";

const opening =
  "SET LOCAL transaction_read_only = on; SET LOCAL pg_task.id = '7'; SELECT coalesce(pg_catalog.to_json((\n";
const closing = "\n\t)::pg_catalog.timestamptz) OPERATOR(pg_catalog.#>>) '{}', 'never')";

const ended = (error: string | null): Extract<RunResult, { outcome: "ended" }> => ({
  outcome: "ended",
  session: 1,
  id: "7",
  start: "2026-01-01T00:00:00Z",
  stop: "2026-01-01T00:00:00Z",
  output: "SET\nSET",
  error,
  sqlstate: null,
  committed: false,
});

function shown(error: string | null): readonly [output: string | null, error: string | null] {
  const result = ruleQueryResult(ended(error));
  assert.equal(result.outcome, "ended");
  return [result.output, result.error];
}

const wrapped = (head: string, query: string): string => `${head}\nSTATEMENT:  ${opening}\t${query}${closing}`;

test("a query that has succeeded keeps its output, which is the time", () => {
  assert.deepEqual(shown(null), ["SET\nSET", null]);
});

test("the statement is the query, and the position is that in the query", () => {
  const error = wrapped(`ERROR:  what at character ${opening.length + 8}\nHINT:  hint`, "SELECT\n\t  1/0");
  assert.deepEqual(shown(error), ["", "ERROR:  what at character 8\nHINT:  hint\nSTATEMENT:  SELECT\n\t  1/0"]);
});

test("a position outside of the query is left out", () => {
  for (const position of [3, opening.length, opening.length + 5]) {
    const error = wrapped(`ERROR:  what\n\tmore at character ${position}`, "with");
    assert.equal(shown(error)[1], "ERROR:  what\n\tmore\nSTATEMENT:  with");
  }
});

test("a position in another query stays", () => {
  const head = "ERROR:  what at character 8\nQUERY:  SELECT nothing";
  assert.equal(shown(wrapped(head, "SELECT f()"))[1], `${head}\nSTATEMENT:  SELECT f()`);
});

test("an error without the statement stays", () => {
  assert.equal(shown("ERROR:  task not active")[1], "ERROR:  task not active");
});
