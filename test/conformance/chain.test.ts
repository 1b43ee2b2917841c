import assert from "node:assert/strict";
import { valueOf, eventually } from "../support/tasks.js";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";

const { database, client, tasks } = await serve(
  { "pg_task.delete": false },
  "CREATE TABLE trail (at serial, step text)",
);
const other = await database.connect();

/** Plans a chain, and returns the ids of its tasks. */
const chain = (parameters: string, on = client): Promise<string[]> =>
  valueOf(on, `SELECT ARRAY(SELECT id::text FROM task_chain(${parameters}) AS id)`);

const step = (name: string): string => `INSERT INTO trail (step) VALUES (''${name}'')`;

test("the steps run one after another, each in a task of its own", async () => {
  const ids = await chain(`ARRAY['${step("one")}', '${step("two")}', '${step("three")}'], "group" => 'parallel'`);
  assert.deepEqual(
    (await tasks.ended(...ids)).map(({ state, group }) => [state, group]),
    ids.map(() => ["DONE", "parallel"]),
  );
  const { rows } = await client.query("SELECT step FROM trail ORDER BY at");
  assert.deepEqual(rows, [{ step: "one" }, { step: "two" }, { step: "three" }]);
});

test("without a group, the steps have that of the column's default", async () => {
  await client.query("SET pg_task.\"group\" = 'of the session'");
  const ids = await chain("ARRAY['SELECT 1', 'SELECT 2']");
  await client.query('RESET pg_task."group"');
  for (const { group } of await tasks.ended(...ids)) assert.equal(group, "of the session");
});

test("the last task runs if a step has failed, and only then", async () => {
  for (const [inputs, states] of [
    ["ARRAY['SELECT 1', 'SELECT 1/0', 'SELECT 3']", "DONE FAIL GONE DONE"],
    ["ARRAY['SELECT 1', 'SELECT 2']", "DONE DONE GONE"],
  ]) {
    const rows = await tasks.ended(...(await chain(`${inputs}, fail => 'SELECT 4'`)));
    assert.equal(rows.map(({ state }) => state).join(" "), states);
  }
});

test("while a step of a chain with a key waits, another chain with the key is left out as a whole", async () => {
  await client.query("SELECT pg_advisory_lock(8)");
  const first = await chain("ARRAY['SELECT pg_advisory_xact_lock_shared(8)', 'SELECT 2', 'SELECT 3'], key => 'night'");
  await tasks.running(first[0] ?? "");
  assert.deepEqual(await chain("ARRAY['SELECT 1', 'SELECT 2', 'SELECT 3'], key => 'night'"), []);
  const { rows } = await client.query(`SELECT key FROM task WHERE key LIKE 'night %' ORDER BY key`);
  assert.deepEqual(rows, [{ key: "night 1" }, { key: "night 2" }, { key: "night 3" }]);
  assert.equal((await chain("ARRAY['SELECT 1'], key => 'other night'")).length, 1);
  await client.query("SELECT pg_advisory_unlock(8)");
  await tasks.ended(...first);
  assert.equal((await chain("ARRAY['SELECT 1', 'SELECT 2', 'SELECT 3'], key => 'night'")).length, 3);
});

test("of two chains with a key that are planned at once, one is left out", async () => {
  for (const session of [client, other]) await session.query("SET pg_task.plan = '1 hour'");
  await client.query("BEGIN");
  const first = await chain("ARRAY['SELECT 1', 'SELECT 2'], key => 'race'");
  const second = chain("ARRAY['SELECT 1', 'SELECT 2'], key => 'race'", other);
  await client.query("COMMIT");
  assert.deepEqual([first.length, await second], [2, []]);
  for (const session of [client, other]) await session.query("RESET pg_task.plan");
});

test("an index of the user that refuses a step is reported", async () => {
  await client.query("CREATE UNIQUE INDEX mine ON task (data) WHERE data IS NOT NULL");
  await client.query("ALTER TABLE task ALTER COLUMN data SET DEFAULT 'same'");
  await assert.rejects(chain("ARRAY['SELECT 1', 'SELECT 2'], key => 'mine'"), { code: "23505", constraint: "mine" });
  await client.query("ALTER TABLE task ALTER COLUMN data DROP DEFAULT; DROP INDEX mine");
  assert.equal((await client.query("SELECT FROM task WHERE key LIKE 'mine %'")).rowCount, 0);
});

test("a schedule plans a chain each time", async () => {
  await tasks.insert({
    rule: "* * * * * *",
    group: "schedule",
    input: `SELECT task_chain(ARRAY['SELECT ''a step'''], key => 'scheduled', "group" => 'planned')`,
  });
  await eventually(
    client,
    `SELECT output FROM task WHERE "group" = 'planned' AND state = 'DONE' AND output = 'a step'`,
    (rows) => rows.length >= 2,
  );
  await client.query("DELETE FROM task WHERE rule IS NOT NULL");
});

for (const [title, parameters, message] of [
  ["no input", "'{}'", "task_chain expects at least one input"],
  ["null instead of inputs", "NULL", "task_chain expects at least one input"],
  ["a null among the inputs", "ARRAY['SELECT 1', NULL]", "input 2 of task_chain is null"],
] as const) {
  test(`${title} is refused`, async () => {
    await assert.rejects(chain(parameters), { code: "22023", message });
  });
}

test("an array counts its elements from any lower bound, and row by row", async () => {
  const ids = await chain(`'[5:6]={SELECT 1,SELECT 2}'`);
  ids.push(...(await chain("ARRAY[['SELECT 1', 'SELECT 2'], ['SELECT 3', 'SELECT 4']]")));
  const outputs = (await tasks.ended(...ids)).map(({ output }) => output);
  assert.deepEqual(outputs, ["1", "2", "1", "2", "3", "4"]);
});
