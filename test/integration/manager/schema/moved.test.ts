import assert from "node:assert/strict";
import { cli } from "../../../support/cli.js";
import { configFolder } from "../../../support/configFile.js";
import { createDatabase } from "../../../support/database.js";
import { doctor } from "../../../support/doctor.js";
import { test } from "../../../support/limitedTest.js";
import type { LogLine } from "../../../support/logLines.js";
import { PgTask } from "../../../support/pgTask.js";
import { waitForRow } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase("empty");
const client = await database.connect();

/**
 * Serves the table until it has run a plain task, a schedule and a chain, reads its views and asks the doctor. Returns
 * what was logged, except about the processes.
 */
async function serve(schema: string, table: string): Promise<LogLine[]> {
  const configuration = { url: database.url, "pg_task.schema": schema, "pg_task.table": table };
  const from = pgTask.lines.length;
  await pgTask.start(configuration);
  await client.query("DROP TABLE IF EXISTS effect; CREATE TABLE effect (id int)");
  const name = `"${schema}"."${table}"`;
  await client.query(
    `INSERT INTO ${name} (input, plan, rule) VALUES ('INSERT INTO public.effect VALUES (1)', now(), NULL),
       ('INSERT INTO public.effect VALUES (2)', now(), '* * * * *')`,
  );
  await client.query(`UPDATE ${name} SET plan = now() WHERE rule IS NOT NULL AND state = 'PLAN'`);
  await client.query(
    `SELECT "${schema}"."${table}_chain"(ARRAY['INSERT INTO public.effect VALUES (3)', 'INSERT INTO public.effect VALUES (4)'])`,
  );
  await waitForRow(client, "SELECT FROM effect HAVING count(DISTINCT id) >= 3 AND max(id) = 4");
  for (const view of ["stats", "errors", "groups", "schedules"])
    await client.query(`SELECT FROM "${schema}"."${table}_${view}"`);
  const { lines } = await doctor({}, await configFolder(configuration));
  const failed = lines.filter(({ level, name: check }) => level === "fail" || (check === "views" && level !== "ok"));
  assert.deepEqual(failed, []);
  await pgTask.stop();
  const logged = pgTask.lines.slice(from);
  assert.deepEqual(
    logged.filter(({ level }) => level === "warn" || level === "error"),
    [],
  );
  return logged.filter(({ table: of }) => of !== undefined);
}

async function objectsNamed(pattern: string): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT relname AS name FROM pg_class WHERE relname LIKE $1 AND relname NOT SIMILAR TO '%(_pkey|_id_seq)'
     UNION SELECT proname FROM pg_proc WHERE proname LIKE $1 AND obj_description(oid, 'pg_proc') NOT LIKE 'pg-task calendar%'
     UNION SELECT tgname FROM pg_trigger WHERE tgname LIKE $1`,
    [pattern],
  );
  return rows.map(({ name }) => name);
}

const replaced = "functions replaced, they named another place";
const followed = "table was moved, its objects follow it";

test("a schema is renamed: INSERTs go on, and the start replaces the functions that name the old one", async () => {
  await client.query("CREATE SCHEMA shop");
  await serve("shop", "task");
  await client.query("ALTER SCHEMA shop RENAME TO store");
  await client.query("INSERT INTO store.task (input) VALUES ('SELECT 1')");
  const configuration = { url: database.url, "pg_task.schema": "store" };
  const cwd = await configFolder(configuration);
  const table = (await doctor({}, cwd)).lines.find(({ name }) => name === "table");
  assert.deepEqual(
    [table?.level, table?.text],
    ["warn", 'functions of "store"."task" name another place, because the table or its schema was renamed or moved'],
  );
  assert.match((await cli(["check"], { cwd })).stdout, /functions of "store"."task" name another place/);
  const lines = await serve("store", "task");
  assert.ok(lines.some(({ msg }) => msg === replaced));
  await waitForRow(client, "SELECT FROM store.task WHERE input = 'SELECT 1' AND state = 'DONE'");
  assert.ok(!(await serve("store", "task")).some(({ msg }) => msg === replaced));
});

test("a table is renamed: its objects follow it, with pauses and home", async () => {
  await client.query(`INSERT INTO store.task_pause ("group") VALUES ('held')`);
  await client.query("ALTER TABLE store.task RENAME TO job");
  await client.query("INSERT INTO store.job (input) VALUES ('SELECT 2')");
  const cwd = await configFolder({ url: database.url, "pg_task.schema": "store", "pg_task.table": "job" });
  assert.match((await cli(["check"], { cwd })).stdout, /was moved from store\.task, its objects would follow it/);
  const lines = await serve("store", "job");
  assert.ok(lines.some(({ msg, from }) => msg === followed && from === "store.task"));
  assert.deepEqual((await client.query(`SELECT "group" FROM store.job_pause`)).rows, [{ group: "held" }]);
  assert.deepEqual(await objectsNamed("task\\_%"), []);
  await waitForRow(client, "SELECT FROM store.job WHERE input = 'SELECT 2' AND state = 'DONE'");
});

test("a table is moved to another schema alone: its objects follow it", async () => {
  await client.query("CREATE SCHEMA warehouse; ALTER TABLE store.job SET SCHEMA warehouse");
  await client.query("INSERT INTO warehouse.job (input) VALUES ('SELECT 3')");
  const lines = await serve("warehouse", "job");
  assert.ok(lines.some(({ msg, from }) => msg === followed && from === "store.job"));
  await waitForRow(client, "SELECT FROM warehouse.job WHERE input = 'SELECT 3' AND state = 'DONE'");
  const left = await client.query("SELECT relname FROM pg_class WHERE relnamespace = 'store'::regnamespace");
  assert.deepEqual(left.rows, []);
});

test("a table is moved with all its objects: the start replaces its functions", async () => {
  await client.query("CREATE SCHEMA other");
  await client.query(`DO $$ DECLARE o record; BEGIN
    FOR o IN SELECT format('ALTER TABLE warehouse.%I SET SCHEMA other', relname) AS move FROM pg_class
        WHERE relnamespace = 'warehouse'::regnamespace AND relkind IN ('r', 'v')
      UNION ALL SELECT format('ALTER ROUTINE %s SET SCHEMA other', oid::regprocedure) FROM pg_proc
        WHERE pronamespace = 'warehouse'::regnamespace LOOP
      EXECUTE o.move;
    END LOOP;
  END $$`);
  const lines = await serve("other", "job");
  assert.ok(lines.some(({ msg }) => msg === replaced));
});

test("a table whose old name is taken again gets objects of its own, and does without the old triggers", async () => {
  await client.query(
    "ALTER TABLE other.job RENAME TO former; CREATE TABLE other.job (LIKE other.former INCLUDING ALL)",
  );
  const lines = await serve("other", "former");
  assert.ok(lines.some(({ msg }) => msg === "table adopted"));
  const { rows } = await client.query(
    "SELECT tgname FROM pg_trigger WHERE tgrelid = 'other.former'::regclass AND tgname NOT LIKE 'former%' AND NOT tgisinternal",
  );
  assert.deepEqual(rows, []);
});
