import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { taskTable } from "../../../../../src/manager/schema/taskTable.js";
import { identifier } from "../../../../../src/shared/postgres/quoting.js";
import { createDatabase } from "../../../../support/database.js";
import { test } from "../../../../support/limitedTest.js";
import { PgTask } from "../../../../support/pgTask.js";
import { eventually, only, Tasks } from "../../../../support/tasks.js";
import { projectPath } from "../../../../support/project.js";
import { ensureTaskTable } from "../../../../support/taskTables.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const table = taskTable("public", "task");

const source = projectPath("src");

/** Folders of the HTTP server that contain no SQL. */
const withoutSql = ["page", "http", "metrics"];

/** Whether a template is a message: three words in a row, and no keyword of SQL. */
const isMessage = (template: string): boolean =>
  /[a-z] [a-z]+ [a-z]/.test(template.replaceAll(/\$\{[^}]*\}/g, "x")) &&
  !/\b(?:SELECT|FROM|WHERE|SET|AND|CASE)\b/.test(template);

async function statementWords(): Promise<string[]> {
  const words: string[] = [];
  for (const folder of ["manager", "tasks", "web"]) {
    for (const file of await readdir(join(source, folder), { recursive: true })) {
      if (!file.endsWith(".ts")) continue;
      if (folder === "web" && withoutSql.some((each) => file.startsWith(`${each}/`))) continue;
      const text = (await readFile(join(source, folder, file), "utf8")).replace(/^ *(?:\/\*\*|\*|\/\/).*$/gm, "");
      for (const [statement] of text.matchAll(/`[^`]*`/g)) {
        if (isMessage(statement)) continue;
        const sql = statement.replaceAll(/\$\{[^}`]*\}/g, " ");
        words.push(...(sql.match(/(?<![$\w])[a-z_]\w*\b/g) ?? []));
      }
    }
  }
  return words;
}

/**
 * Returns the names of parameters, and every word of the source, of pg-task's functions in this database. The functions
 * of the calendar read no table.
 */
async function functionWords(): Promise<string[]> {
  const { rows } = await client.query<{ names: string[] | null; source: string }>(
    `SELECT proargnames AS names, prosrc AS source FROM pg_proc
     WHERE starts_with(coalesce(obj_description(oid, 'pg_proc'), ''), 'pg-task ')
       AND NOT starts_with(obj_description(oid, 'pg_proc'), 'pg-task calendar')`,
  );
  return rows.flatMap(({ names, source: body }) => [...(names ?? []), ...(body.match(/\b[a-z_]\w*\b/g) ?? [])]);
}

const system = new Set(["tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"]);

async function usedNames(): Promise<string[]> {
  const all = [...(await functionWords()), ...(await statementWords())];
  return [...new Set(all)].filter((name) => !system.has(name));
}

/** Adds columns with these names to the table in `schema`, except for names that it already has. Returns how many. */
async function addColumns(schema: string, wanted: readonly string[]): Promise<number> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT name FROM unnest($1::text[]) AS name WHERE name NOT IN (
       SELECT attname FROM pg_attribute WHERE attrelid = $2::regclass)`,
    [wanted, `${schema}.task`],
  );
  // The values are short, because a row of so many columns must fit into a page.
  const columns = rows.map(({ name }) => `ADD COLUMN ${identifier(name)} text DEFAULT 'm'`);
  await client.query(`ALTER TABLE ${schema}.task ${columns.join(", ")}`);
  return columns.length;
}

const { rows: columns } = await client.query<{ name: string }>(
  "SELECT attname AS name FROM pg_attribute WHERE attrelid = 'task'::regclass AND attnum > 0",
);
const ours = new Set(columns.map(({ name }) => name));

test("columns may have the names of anything in pg-task's functions and statements", async () => {
  const own = await usedNames();
  for (const name of ["task", "taken", "holder", "ledger", "me", "found_owner", "next", "root"]) {
    assert.ok(own.includes(name), `${name} was found in the functions' definitions`);
  }
  assert.ok((await addColumns("public", own)) >= 100);

  const tasks = await Tasks.create(client);
  await client.query("CREATE TABLE effect (what text)");
  await pgTask.start({ url: database.url, "pg_task.sleep": 200 });
  const writes = "INSERT INTO effect VALUES (current_setting('pg_task.id'))";

  const written = await tasks.insert(...Array.from({ length: 20 }, (_, n) => ({ input: writes, group: `g${n % 3}` })));
  for (const row of await tasks.ended(...written)) {
    assert.deepEqual([row.state, row.error], ["DONE", null]);
  }
  // Slow tasks are checked while they run, and are completed by other statements than short tasks.
  assert.equal((await tasks.run(`${writes}; SELECT pg_sleep(0.3)`)).state, "DONE");
  assert.equal((await tasks.run("SELECT 1/0")).state, "FAIL");
  const late = { plan: "2020-01-01", active: "1 minute" };
  assert.equal((await tasks.run("SELECT 1", late)).state, "GONE");

  const repeats = await tasks.run(writes, { repeat: "1 hour", group: "again" });
  assert.equal(repeats.state, "DONE");
  const copies = await client.query<{ task: string; me: string }>("SELECT task, me FROM task WHERE parent = $1", [
    repeats.id,
  ]);
  assert.deepEqual(copies.rows, [{ task: "m", me: "m" }]);

  const pauses = await tasks.insert(
    { input: writes, group: "rest", max: -50 },
    { input: writes, group: "rest", max: -50 },
  );
  for (const row of await tasks.ended(...pauses)) assert.equal(row.state, "DONE");

  await client.query("INSERT INTO task_pause VALUES ('held')");
  const [held = ""] = await tasks.insert({ input: writes, group: "held" });
  await tasks.run(writes);
  assert.equal((await tasks.row(held)).state, "PLAN");
  await client.query("DELETE FROM task_pause");
  assert.equal(only(await tasks.ended(held)).state, "DONE");

  // The task ends its own session in its first run. It is rescued and runs again.
  const dies = `${writes}; SELECT pg_terminate_backend(pg_backend_pid()) FROM task WHERE id = $1 AND crash = 0`;
  const [dead = ""] = await tasks.insert({ input: "SELECT 1", plan: "2100-01-01" });
  await client.query("UPDATE task SET plan = now(), input = $2 WHERE id = $1", [dead, dies.replace("$1", dead)]);
  const rescued = only(await tasks.ended(dead));
  assert.deepEqual([rescued.state, rescued.crash], ["DONE", 1]);

  const [stopped = ""] = await tasks.insert({ input: `${writes}; SELECT pg_sleep(60)` });
  await tasks.sleeping(stopped);
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [stopped]);
  const ended = await tasks.until([stopped], (row) => row.owner === null);
  assert.equal(only(ended).state, "STOP");

  await client.query("INSERT INTO task (input, keep, delete) VALUES ('SELECT 2', '1 ms', false)");
  await eventually(client, "SELECT FROM task WHERE keep > '0 sec'", (rows) => rows.length === 0);

  const effects = await client.query<{ count: string }>(
    "SELECT count(*) AS count FROM effect GROUP BY what HAVING count(*) > 1",
  );
  assert.deepEqual(effects.rows, []);

  for (const view of [table.statsView, table.errorsView, table.groupsView]) {
    const { rowCount } = await client.query(`SELECT * FROM ${view}`);
    assert.ok((rowCount ?? 0) > 0, view);
  }
});

test("the same holds in adopted tables, partitioned or not", async () => {
  const own = await usedNames();
  for (const [schema, partitioned] of [
    ["theirs", false],
    ["parts", true],
  ] as const) {
    await client.query(`
      CREATE SCHEMA ${schema}; CREATE TYPE ${schema}.state AS ENUM ('PLAN');
      CREATE TABLE ${schema}.task (id bigserial, input text NOT NULL, plan timestamptz NOT NULL DEFAULT now(),
        state ${schema}.state NOT NULL DEFAULT 'PLAN', PRIMARY KEY (id, plan))
      ${partitioned ? "PARTITION BY RANGE (plan)" : ""}`);
    if (partitioned) await client.query(`CREATE TABLE ${schema}.every PARTITION OF ${schema}.task DEFAULT`);
    // Columns that adoption adds are left out, so that they get their own types.
    await addColumns(
      schema,
      own.filter((name) => !ours.has(name)),
    );
    await client.query(`INSERT INTO ${schema}.task (input) VALUES ('CREATE TABLE ${schema}.made ()')`);
    await ensureTaskTable(database.target, { schema });
    const another = new PgTask();
    await another.start({
      url: database.url,
      "pg_task.schema": schema,
      "pg_conf.name": schema,
    });
    const rows = await eventually<{ state: string; error: string | null }>(
      client,
      `SELECT state::text, error FROM ${schema}.task`,
      (found) => found.every(({ state }) => !["PLAN", "TAKE", "WORK"].includes(state)),
    );
    assert.deepEqual(rows, [{ state: "DONE", error: null }]);
    await another.stop();
  }
});
