import assert from "node:assert/strict";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { Tasks } from "../../../support/tasks.js";

const pgTask = new PgTask();
const latin = await createDatabase("LATIN1");
await pgTask.start({ url: latin.url });
const tasks = await Tasks.create(await latin.connect());

/** SQL for a text of three characters whose bytes in LATIN1 are the bytes of € in UTF-8. */
const foreign = "convert_from('\\xe282ac', 'LATIN1')";

const refusal =
  /ERROR: {2}result has characters that the database cannot store, all but plain ASCII became "\?": .* no equivalent in encoding "LATIN1"$/;

test("characters of the database's encoding are returned unchanged", async () => {
  const { state, output } = await tasks.run("SELECT 'é' AS a, 'ÿ' AS b");
  assert.deepEqual([state, output], ["DONE", "a\tb\né\tÿ"]);
});

test("output that the database cannot store ends the task as FAIL and delays no other", async () => {
  const ids = await tasks.insert(
    { input: `COPY (SELECT 'a', ${foreign}) TO STDOUT (ENCODING 'LATIN1')`, group: "a" },
    { input: "SELECT 'é'", group: "b" },
    { input: "SELECT 1", group: "a" },
  );
  const rows = await tasks.ended(...ids);
  assert.deepEqual(
    rows.map(({ state, output }) => [state, output]),
    [
      ["FAIL", "a\t?"],
      ["DONE", "é"],
      ["DONE", "1"],
    ],
  );
  assert.match(rows[0]?.error ?? "", new RegExp(`^${refusal.source}`));
});

test("an error that the database cannot store stays, before the one that says so", async () => {
  const { state, output, error } = await tasks.run(
    `SET client_encoding = 'SQL_ASCII'; DO $$ BEGIN RAISE 'no %', ${foreign}; END $$`,
  );
  assert.deepEqual([state, output], ["FAIL", "SET"]);
  assert.match(error ?? "", /^ERROR: {2}no \?\n/);
  assert.match(error ?? "", refusal);
});
