import assert from "node:assert/strict";
import { test } from "node:test";
import { createDatabase } from "../../../support/database.js";
import { ClaimedRuns } from "../../../support/claimedRuns.js";

const runs = await ClaimedRuns.create(await createDatabase());
await runs.admin.query(`
  CREATE FUNCTION lock_out(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    EXECUTE 'SET LOCAL transaction_read_only = on'; RETURN $1; END $$`);

const args = '["x", 1]';
const insert = "INSERT INTO effect SELECT $1 FROM generate_series(1, $2)";

for (const [way, options] of [
  ["pipelined", {}],
  ["stepwise", { timeoutMs: 60_000 }],
] as const) {
  test(`the effect of an input with parameters is committed with its proof (${way})`, async () => {
    await runs.admin.query("TRUNCATE effect");
    const { proofs, effects, error, committed } = await runs.run(insert, { args, ...options });
    assert.deepEqual([proofs, effects, error, committed], [1, ["x"], null, true]);
  });

  test(`neither effect nor proof is left if the row was changed (${way})`, async () => {
    await runs.admin.query("TRUNCATE effect");
    const run = await runs.claim(insert, { args, ...options });
    await runs.admin.query("UPDATE task SET state = 'STOP' WHERE id = $1", [run.id]);
    const { proofs, effects, committed } = await runs.dispatch(run);
    assert.deepEqual([proofs, effects, committed], [0, [], false]);
  });
}

test("an input with parameters is repeated step by step if the proof was refused, and then without a transaction", async () => {
  await runs.admin.query("TRUNCATE effect");
  const { error, output } = await runs.run("SELECT lock_out($1)", { args: '["x"]' });
  assert.deepEqual([error, output], [null, "x"]);
});

test("a run behind a failed run with parameters gets its own values", async () => {
  await runs.admin.query("TRUNCATE effect");
  const inputs = [
    [insert, '["a", 1]'],
    ["SELECT $1::integer", '["no number"]'],
    [insert, '["b", 1]'],
    [`${insert}; SELECT 1`, '["c", 1]'],
    [insert, '["d", 1]'],
  ] as const;
  const sent = [];
  for (const [input, values] of inputs) sent.push(await runs.claim(input, { args: values }));
  runs.driver.executor.dispatch(sent);
  const outcomes = [];
  for (const run of sent) outcomes.push(await runs.outcome(run));
  assert.deepEqual(
    outcomes.map(({ error, proofs }) => [error === null, proofs]),
    [
      [true, 1],
      [false, 0],
      [true, 1],
      [false, 0],
      [true, 1],
    ],
  );
  assert.deepEqual(await runs.effects(), ["a", "b", "d"]);
});

test("args arrive intact after a run that has changed the encoding", async () => {
  await runs.admin.query("TRUNCATE effect");
  const change = "SELECT set_config('client_encoding', $1, false)";
  const first = await runs.run(change, { args: '["LATIN1"]' });
  assert.equal(first.error, null);
  const { output } = await runs.run("SELECT $1, current_setting('pg_task.args')", { args: '["ä€"]' });
  assert.equal(output, '?column?\tcurrent_setting\nä€\t["ä€"]');
});
