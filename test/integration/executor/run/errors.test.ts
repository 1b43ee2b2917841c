import assert from "node:assert/strict";
import { test } from "node:test";
import { createDatabase } from "../../../support/database.js";
import { ExecutorDriver } from "../../../support/executorDriver.js";

const database = await createDatabase();
const admin = await database.connect();
const driver = new ExecutorDriver(database.target, admin);
await driver.open(1);

/** Runs an input, and returns its error without the last field (STATEMENT). */
async function errorOf(input: string): Promise<string> {
  const { error } = await driver.run(1, input);
  const statement = `\nSTATEMENT:  ${input.replaceAll("\n", "\n\t")}`;
  assert.ok(error !== null && error.endsWith(statement), error ?? "no error");
  return error.slice(0, -statement.length);
}

test("a position follows the message and counts characters", async () => {
  assert.equal(await errorOf("SELECT 'ä', nothing"), 'ERROR:  column "nothing" does not exist at character 13');
});

test("continuation lines begin with a tab in every field", async () => {
  assert.equal(
    await errorOf(`DO $$ BEGIN\nRAISE E'one\\ntwo' USING DETAIL = E'three\\n\\nfour', HINT = E'five\\nsix';\nEND $$`),
    "ERROR:  one\n\ttwo\nDETAIL:  three\n\t\n\tfour\nHINT:  five\n\tsix\n" +
      "CONTEXT:  PL/pgSQL function inline_code_block line 2 at RAISE",
  );
});

test("an error in an internal query has that query and the position in it", async () => {
  assert.equal(
    await errorOf("DO $$ BEGIN\nEXECUTE 'SELECT nothing';\nEND $$"),
    'ERROR:  column "nothing" does not exist at character 8\nQUERY:  SELECT nothing\n' +
      "CONTEXT:  PL/pgSQL function inline_code_block line 2 at EXECUTE",
  );
});

test("an error without a message shows its SQLSTATE", async () => {
  assert.match(await errorOf("DO $$ BEGIN RAISE SQLSTATE '22012'; END $$"), /^ERROR: {2}22012\n/);
});

test("an error in another client encoding is readable", async () => {
  assert.equal(
    await errorOf(`SET client_encoding = 'LATIN1'; DO $$ BEGIN RAISE 'a ä b'; END $$`),
    "ERROR:  a ? b\nCONTEXT:  PL/pgSQL function inline_code_block line 1 at RAISE",
  );
});

test("an error beyond the message limit is truncated", async () => {
  const small = new ExecutorDriver(database.target, admin, { outputLimit: 10 });
  await small.open(1);
  const { error } = await small.run(1, "DO $$ BEGIN RAISE '%', repeat('x', 3000000); END $$");
  assert.ok(error !== null && error.length > 1_000_000 && error.length < 1_100_000);
  assert.equal((await small.run(1, "SELECT 1")).output, "1");
});
