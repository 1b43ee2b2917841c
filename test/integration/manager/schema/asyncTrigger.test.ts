import assert from "node:assert/strict";
import { takenUserFunctions } from "../../../../src/manager/schema/functions/ensureUserFunctions.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { createLog } from "../../../../src/shared/log.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { ensureTaskTable, openManager } from "../../../support/taskTables.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();

/** Prepares the table of a schema as a manager does at its start. Returns its warnings. */
async function ensured(schema: string): Promise<string[]> {
  const lines: string[] = [];
  const log = createLog({ level: "warn", name: "test", write: (line) => lines.push(line) });
  const table = await ensureTaskTable(target, { schema }, { log });
  assert.equal((await takenUserFunctions(client, table)).length, lines.length);
  return lines;
}

/** Changes when the function is replaced. */
async function version(schema: string): Promise<unknown> {
  const { rows } = await client.query(
    "SELECT xmin::text AS version, prosrc FROM pg_proc WHERE oid = to_regprocedure($1)",
    [`${schema}.task_async()`],
  );
  return rows[0];
}

test("the trigger function is created once, and again if it was dropped or comes from another version", async () => {
  assert.deepEqual(await ensured("whole"), []);
  const first = await version("whole");
  assert.deepEqual(await ensured("whole"), []);
  assert.deepEqual(await version("whole"), first);
  await client.query("DROP FUNCTION whole.task_async()");
  await ensured("whole");
  assert.notEqual(await version("whole"), undefined);
  await client.query(`
    CREATE OR REPLACE FUNCTION whole.task_async() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    COMMENT ON FUNCTION whole.task_async() IS 'pg-task async trigger 0123456789abcdef'`);
  await ensured("whole");
  assert.match(JSON.stringify(await version("whole")), /jsonb_build_object/);
});

test("the task table can be dropped while other tables have triggers that call the function", async () => {
  await ensured("dropped");
  await client.query(`
    CREATE TABLE dropped.paid (id integer);
    CREATE TRIGGER t AFTER INSERT ON dropped.paid FOR EACH ROW EXECUTE FUNCTION dropped.task_async('SELECT 1');
    INSERT INTO dropped.paid VALUES (1);
    DROP TABLE dropped.task`);
  await ensured("dropped");
  await client.query("INSERT INTO dropped.paid VALUES (2)");
  const { rows } = await client.query("SELECT (args->'new'->>'id')::integer AS id FROM dropped.task");
  assert.deepEqual(rows, [{ id: 2 }]);
});

test("a user's own function of that name stays, and a log line says so", async () => {
  await client.query(`
    CREATE SCHEMA taken;
    CREATE FUNCTION taken.task_async() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`);
  const before = await version("taken");
  const [line = "", ...more] = await ensured("taken");
  assert.deepEqual(more, []);
  assert.match(
    line,
    /"function":"\\"taken\\"\.\\"task_async\\"\(\)".*"msg":"function not created, another one has its name"/,
  );
  assert.deepEqual(await version("taken"), before);
  await client.query("ALTER FUNCTION taken.task_async() RENAME TO mine");
  assert.deepEqual(await ensured("taken"), []);
});

test("functions that call each other are not created without that of the same name", async () => {
  await client.query(`
    CREATE SCHEMA chained;
    CREATE FUNCTION chained.task_chain(jsonb, text, text, text) RETURNS SETOF bigint LANGUAGE sql AS 'SELECT 1::bigint'`);
  const [line = "", ...more] = await ensured("chained");
  assert.deepEqual(more, []);
  assert.match(line, /task_chain\W+\(jsonb, text, text, text\)/);
  const { rows } = await client.query(
    "SELECT FROM pg_proc WHERE pronamespace = 'chained'::regnamespace AND proname = 'task_chain'",
  );
  assert.equal(rows.length, 1);
});

test("a function with other parameters does not count", async () => {
  await client.query(
    "CREATE SCHEMA overloaded; CREATE FUNCTION overloaded.task_async(integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
  );
  assert.deepEqual(await ensured("overloaded"), []);
});

test("a function of a role that the manager does not trust is not taken for pg-task's", async () => {
  const owner = `owner_${target.database}`;
  const stranger = `stranger_${target.database}`;
  await client.query(`CREATE ROLE ${owner} LOGIN; CREATE ROLE ${stranger}`);
  await client.query(`
    CREATE SCHEMA strange AUTHORIZATION ${owner}; GRANT ALL ON SCHEMA strange TO ${stranger}; SET ROLE ${stranger};
    CREATE FUNCTION strange.task_async() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    COMMENT ON FUNCTION strange.task_async() IS 'pg-task async trigger 0123456789abcdef'; RESET ROLE`);
  assert.deepEqual(
    await takenUserFunctions(client, taskTable("strange", "task")),
    [],
    "a superuser has its privileges",
  );
  const other = await openManager({ ...target, user: owner });
  try {
    const taken = await takenUserFunctions(other, taskTable("strange", "task"));
    assert.deepEqual(
      taken.map(({ purpose }) => purpose),
      ["asynchronous triggers"],
    );
  } finally {
    await other.end();
    await client.query(`DROP OWNED BY ${owner}, ${stranger} CASCADE; DROP ROLE ${owner}, ${stranger}`);
  }
});
