import assert from "node:assert/strict";
import { afterEach } from "node:test";
import { cli } from "../../../support/cli.js";
import { configFolder } from "../../../support/configFile.js";
import { createDatabase } from "../../../support/database.js";
import { doctor } from "../../../support/doctor.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { waitForRow, waitForRun } from "../../../support/tasks.js";
import { Web } from "../../../support/web.js";

const pgTask = new PgTask();
const database = await createDatabase("empty");
const client = await database.connect();
await client.query("CREATE TABLE effect (run text)");

afterEach(async () => {
  await client.query("SELECT pg_advisory_unlock_all()");
  await pgTask.stop();
});

const configurationOf = (schema: string, table = "task"): Readonly<Record<string, unknown>> => ({
  url: database.url,
  "pg_conf.restart": 1,
  "pg_task.schema": schema,
  "pg_task.table": table,
});

/** Starts pg-task, and lets the table have a paused group with a task, and a schedule. */
async function start(schema: string, more: Readonly<Record<string, unknown>> = {}): Promise<void> {
  const from = pgTask.lines.length;
  await pgTask.start({ ...configurationOf(schema), ...more });
  await pgTask.logged(({ msg }) => msg === "serving table", from);
  await client.query(
    `INSERT INTO ${schema}.task_pause ("group") VALUES ('held');
     INSERT INTO ${schema}.task (input, "group") VALUES ('INSERT INTO public.effect VALUES (''held'')', 'held');
     INSERT INTO ${schema}.task (input, plan, rule) VALUES ('SELECT 1', now() + interval '1 day', '0 0 1 1 *')`,
  );
}

async function startRun(schema: string): Promise<string> {
  await client.query("SELECT pg_advisory_lock(3)");
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO ${schema}.task (input) VALUES ('INSERT INTO public.effect VALUES (''${schema}''); SELECT pg_advisory_xact_lock_shared(3)') RETURNING id`,
  );
  const id = rows[0]?.id ?? "";
  await waitForRun(client, id, `${schema}.task`);
  return id;
}

/** Waits until the run has been written once, and asserts that pauses and schedules were kept, and that new tasks run. */
async function assertServed(table: string, { run, effect }: { run?: string; effect?: string } = {}): Promise<void> {
  const { rows } = await client.query<{ id: string }>(`INSERT INTO ${table} (input) VALUES ('SELECT 2') RETURNING id`);
  for (const id of [rows[0]?.id, run])
    if (id !== undefined) await waitForRow(client, `SELECT FROM ${table} WHERE id = ${id} AND state = 'DONE'`);
  const { rows: kept } = await client.query(
    `SELECT (SELECT string_agg("group", ',') FROM ${table}_pause) AS pauses,
       (SELECT string_agg(state::text, ',') FROM ${table} WHERE "group" = 'held') AS held,
       (SELECT count(*)::int FROM ${table} WHERE rule IS NOT NULL AND state = 'PLAN') AS schedules,
       (SELECT count(*)::int FROM public.effect WHERE run = $1) AS effects`,
    [effect],
  );
  assert.deepEqual(kept, [{ pauses: "held", held: "PLAN", schedules: 1, effects: effect === undefined ? 0 : 1 }]);
}

async function relationExists(name: string): Promise<boolean> {
  const { rows } = await client.query<{ found: boolean }>("SELECT to_regclass($1) IS NOT NULL AS found", [name]);
  return rows[0]?.found === true;
}

/** Waits until the manager has found, since this log line, that the table was moved. Returns the reason. */
async function movedSince(from: number): Promise<string> {
  const { reason } = await pgTask.logged(({ code }) => code === "SCHEMA_MOVED", from);
  return String(reason);
}

test("a schema is renamed while its table is served: nothing is created, everything says where it is, and undoing it helps", async () => {
  await start("app", { "pg_http.listen": "127.0.0.1:0" });
  const web = await Web.connect(pgTask);
  const cwd = await configFolder(configurationOf("app"));
  const run = await startRun("app");
  const from = pgTask.lines.length;
  await client.query("ALTER SCHEMA app RENAME TO app2");
  await client.query("SELECT pg_advisory_unlock(3)");
  const reason = await movedSince(from);
  const remedy = 'set pg_task.schema to "app2", or undo it: ALTER SCHEMA "app2" RENAME TO "app"';
  const text = 'table "app"."task" is now "app2"."task", and nothing starts';
  assert.equal(reason, `${text}: ${remedy}`);
  const { code, lines } = await doctor({}, cwd);
  const table = lines.find(({ level }) => level === "fail");
  assert.deepEqual([code, table?.name, table?.text, table?.remedy], [4, "table", text, remedy]);
  const checked = await cli(["check"], { cwd });
  assert.notEqual(checked.code, 0);
  for (const said of [
    checked.stdout,
    (await cli(["status"], { cwd })).stdout,
    (await cli(["list", "--schedules"], { cwd })).stderr,
    (await web.request("/health")).text.replaceAll('\\"', '"'),
  ])
    assert.ok(said.includes(reason), said);
  const ready = await web.request("/ready");
  assert.deepEqual([ready.status, ready.text], [503, `not ready: no manager serves its table: ${reason}\n`]);
  // Meanwhile, the manager has tried several times.
  assert.equal(await relationExists("app.task"), false);
  assert.equal(pgTask.lines.filter((line) => line["reason"] === reason).length, 1);
  await client.query('ALTER SCHEMA "app2" RENAME TO "app"');
  await pgTask.logged(({ msg }) => msg === "serving table", from);
  await assertServed("app.task", { run, effect: "app" });
});

test("after the configuration is changed, a renamed schema is served with its pauses, schedules and running tasks", async () => {
  await start("shop");
  const run = await startRun("shop");
  const from = pgTask.lines.length;
  await client.query("ALTER SCHEMA shop RENAME TO store");
  await client.query("SELECT pg_advisory_unlock(3)");
  await movedSince(from);
  await pgTask.reload(configurationOf("store"));
  await assertServed("store.task", { run, effect: "shop" });
});

for (const [what, change, target, settings] of [
  ["moved to another schema", "SET SCHEMA", ["warehouse", "task"], 'pg_task.schema to "warehouse"'],
  ["renamed", "RENAME TO", ["sale", "job"], 'pg_task.table to "job"'],
] as const) {
  const [schema, name] = target;
  const moved = `${schema}.${name}`;
  const source = change === "SET SCHEMA" ? "stock" : "sale";

  test(`a table is ${what} while it is served: it is not created anew, also not by another start`, async () => {
    await start(source);
    await client.query(`CREATE SCHEMA IF NOT EXISTS ${schema}`);
    const run = await startRun(source);
    let from = pgTask.lines.length;
    await client.query(`ALTER TABLE ${source}.task ${change} ${change === "SET SCHEMA" ? schema : name}`);
    await client.query(`SELECT pg_advisory_unlock(3); INSERT INTO ${moved} (input) VALUES ('SELECT 3')`);
    const reason = await movedSince(from);
    const undone = change === "SET SCHEMA" ? 'SET SCHEMA "stock"' : 'RENAME TO "task"';
    assert.equal(
      reason,
      `table "${source}"."task" is now "${schema}"."${name}", and nothing starts: set ${settings}, or undo it: ALTER TABLE "${schema}"."${name}" ${undone}`,
    );
    await pgTask.stop();
    from = pgTask.lines.length;
    pgTask.launch(configurationOf(source));
    assert.equal(await movedSince(from), reason);
    const { lines } = await doctor({}, await configFolder(configurationOf(source)));
    assert.ok(lines.some(({ level, text, remedy }) => level === "fail" && `${text}: ${remedy}` === reason));
    assert.equal(await relationExists(`${source}.task`), false);
    await client.query(`ALTER TABLE "${schema}"."${name}" ${undone}`);
    await pgTask.logged(({ msg }) => msg === "serving table", from);
    await assertServed(`${source}.task`, { run, effect: source });
    await client.query(`ALTER TABLE ${source}.task ${change} ${change === "SET SCHEMA" ? schema : name}`);
    await movedSince(pgTask.lines.length);
    await pgTask.reload(configurationOf(schema, name));
    await assertServed(moved, { effect: source });
    await pgTask.stop();
    assert.equal(await relationExists(`${source}.task_pause`), false);
  });
}

test("a process that starts after its schema was renamed waits, also if the entry is new", async () => {
  await client.query("ALTER SCHEMA store RENAME TO depot");
  const from = pgTask.lines.length;
  pgTask.launch(configurationOf("store"));
  assert.match(await movedSince(from), /^table "store"\."task" is now "depot"\."task", and nothing starts: /);
  await pgTask.reload(configurationOf("depot"));
  await assertServed("depot.task", { effect: "shop" });
  await pgTask.stop();
  // From then on, nothing says that the table was once called so, and the name can be used again.
  await pgTask.start(configurationOf("store"));
  assert.equal(await relationExists("store.task"), true);
});
