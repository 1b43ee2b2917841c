import assert from "node:assert/strict";
import { describe } from "node:test";
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

test("an array counts its elements from any lower bound, and row by row", async () => {
  const ids = await chain(`'[5:6]={SELECT 1,SELECT 2}'`);
  ids.push(...(await chain("ARRAY[['SELECT 1', 'SELECT 2'], ['SELECT 3', 'SELECT 4']]")));
  const outputs = (await tasks.ended(...ids)).map(({ output }) => output);
  assert.deepEqual(outputs, ["1", "2", "1", "2", "3", "4"]);
});

test("a step can have options of its own", async () => {
  const ids = await chain(`'[
    {"input": "SELECT 1/0", "retry": 0, "data": "first", "group": "own"},
    {"input": "SELECT $1", "upon": "end", "args": [7], "timeout": "1 min"},
    "SELECT 3"
  ]'::jsonb, "group" => 'steps'`);
  const rows = await tasks.ended(...ids);
  assert.deepEqual(
    rows.map(({ state, group, output, data }) => [state, group, output, data]),
    [
      ["FAIL", "own", "", "first"],
      ["DONE", "steps", "7", null],
      ["DONE", "steps", "3", null],
    ],
  );
  assert.ok(await tasks.holds(ids[1] ?? "", "timeout = '1 min'"));
});

test("steps need no cast, also as the parameter of a client", async () => {
  const ids = await chain(`'[{"input": "SELECT 1"}, "SELECT 2"]', key => 'text'`);
  ids.push(
    ...(await valueOf<string[]>(client, "SELECT ARRAY(SELECT id::text FROM task_chain($1) AS id)", [`["SELECT 3"]`])),
  );
  ids.push(
    ...(await valueOf<string[]>(client, "SELECT ARRAY(SELECT id::text FROM task_chain($1) AS id)", [
      ["SELECT 4", "SELECT 5"],
    ])),
  );
  const outputs = (await tasks.ended(...ids)).map(({ output }) => output);
  assert.deepEqual(outputs, ["1", "2", "3", "4", "5"]);
});

test("a step can have a key of its own, and one that is taken is reported unless the chain has a key", async () => {
  await tasks.insert({ input: "SELECT 1", key: "step", plan: "infinity" });
  const steps = `'["SELECT 1", {"input": "SELECT 2", "key": "step"}]'`;
  await assert.rejects(chain(steps), { code: "23505" });
  assert.deepEqual(await chain(`${steps}, key => 'own'`), []);
});

for (const [title, parameters, message] of [
  ["no input", "'{}'", "task_chain expects at least one input"],
  ["null instead of inputs", "NULL", "task_chain expects at least one input"],
  ["a null among the inputs", "ARRAY['SELECT 1', NULL]", "input 2 of task_chain is null"],
  ["an object instead of steps", `'{}'::jsonb`, "task_chain expects an array of steps, not object"],
  ["no step", `'[]'`, "task_chain expects at least one input"],
  ["a number as a step", `'["SELECT 1", 2]'`, "step 2 of task_chain is neither a string nor an object"],
  ["a step without input", `'["SELECT 1", {"data": "x"}]'`, "input 2 of task_chain is null"],
  ["an unknown option", `'[{"input": "SELECT 1", "inptu": 1, "rule": "@daily"}]'`, "unknown option: inptu, rule"],
  ["upon in the first step", `'[{"input": "SELECT 1", "upon": "end"}]'`, "upon is set without after"],
] as const) {
  test(`${title} is refused`, async () => {
    await assert.rejects(chain(parameters), { code: "22023", message });
  });
}

describe("pg_task.results", () => {
  const read = "SELECT nullif(current_setting('pg_task.results', true), '')";
  const quoted = read.replaceAll("'", "''");

  for (const [title, remote] of [
    ["in its own database", null],
    ["on another server", `dbname=${database.target.database}`],
  ] as const) {
    test(`a task finds the outputs of those for which it waited, ${title}`, async () => {
      const [first = "", second = ""] = await tasks.insert(
        { input: "SELECT 6 * 7", group: title },
        { input: "SELECT WHERE false", group: title },
      );
      const id = await tasks.add(read, { after: `{${first},${second}}`, remote });
      assert.deepEqual(JSON.parse((await tasks.end(id)).output ?? ""), { [first]: "42", [second]: null });
    });
  }

  test("each step of a chain finds that of the one before, and no other task any", async () => {
    const ids = await chain(`ARRAY['SELECT 1', '${quoted}', 'SELECT 3', '${quoted}'], "group" => 'one'`);
    ids.push(...(await tasks.insert({ input: read, group: "one" })));
    const outputs = (await tasks.ended(...ids)).map(({ output }) => output);
    assert.deepEqual(outputs, ["1", `{"${ids[0]}": "1"}`, "3", `{"${ids[2]}": "3"}`, String.raw`\N`]);
  });

  test("outputs of more than 1 MB together are left out", async () => {
    const ids = await chain(`ARRAY['SELECT repeat(''x'', 1100000)', '${quoted}']`);
    assert.equal((await tasks.ended(...ids)).at(-1)?.output, String.raw`\N`);
  });
});
