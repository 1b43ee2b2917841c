import assert from "node:assert/strict";
import { beforeEach, it } from "node:test";
import { parameters, type ParameterName } from "../../../src/shared/config/parameters.js";
import { replaceConfig } from "../../support/configFile.js";
import { createDatabase } from "../../support/database.js";
import { startProcess, type TestProcess } from "../../support/process.js";
import { waitForRow } from "../../support/waitFor.js";

const database = await createDatabase();
const client = await database.connect();
const { url } = database;
const reloaded = "configuration reloaded";

beforeEach(() => client.query("DELETE FROM task"));

async function start(config: object = {}): Promise<TestProcess> {
  const program = await startProcess({ config: { url, ...config } });
  await program.line("ready");
  return program;
}

async function reload(program: TestProcess, config: object): Promise<void> {
  const count = program.said(reloaded).length + 1;
  await replaceConfig(program, { url, ...config });
  await program.line(reloaded, count);
}

/** Resolves when the manager goes by this pause, which it does when it has taken everything up. */
async function sleeps(ms: number): Promise<void> {
  await waitForRow(
    client,
    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1",
    [`pg_work public task ${ms}`],
  );
}

async function insert(input: string, count = 1): Promise<string> {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, "group") SELECT $1, md5(random()::text)
     FROM generate_series(1, $2) RETURNING id`,
    [input, count],
  );
  return rows[0]?.id ?? "";
}

const ended = async (id: string): Promise<{ error: string | null; output: string | null }> =>
  await waitForRow(client, "SELECT * FROM task WHERE id = $1 AND state IN ('DONE', 'FAIL')", [id]);

/** Tasks that are in the middle of their pg_sleep: a cancellation ends the task itself. */
const sleeping = `task JOIN pg_stat_activity AS activity USING (pid)
  WHERE task.state = 'WORK' AND activity.wait_event = 'PgSleep'`;

/** Waits until exactly so many tasks run. */
async function runAtOnce(count: number): Promise<void> {
  await waitForRow(client, `SELECT FROM ${sleeping} HAVING count(*) = $1`, [count]);
}

async function sessions(count: number): Promise<void> {
  await waitForRow(
    client,
    `SELECT FROM pg_stat_activity
     WHERE datname = current_database() AND application_name ~ '^pg_task ' HAVING count(*) = $1`,
    [count],
  );
}

/** Ends as many of the tasks that run, each with an error of its own. */
async function endRunning(count: number): Promise<void> {
  const { rows } = await client.query<{ id: string }>(
    `SELECT id, pg_cancel_backend(pid)
     FROM (SELECT id, pid FROM ${sleeping} ORDER BY id LIMIT $1) AS chosen`,
    [count],
  );
  assert.equal(rows.length, count);
  for (const { id } of rows) await ended(id);
}

/** Leaves no task to run, and ends those that do. */
async function endAll(count: number): Promise<void> {
  await client.query("DELETE FROM task WHERE state = 'PLAN'");
  await runAtOnce(count);
  await endRunning(count);
}

/** Another value than the default for each parameter that is a column's default. */
const columns = {
  "pg_task.delete": false,
  "pg_task.drift": true,
  "pg_task.header": false,
  "pg_task.string": false,
  "pg_task.save": true,
  "pg_task.atomic": false,
  "pg_task.count": 7,
  "pg_task.max": -8,
  "pg_task.active": "02:00:00",
  "pg_task.live": "00:00:09",
  "pg_task.repeat": "1 mon",
  "pg_task.keep": "3 days",
  "pg_task.timeout": "00:00:10",
  "pg_task.delimiter": ";",
  "pg_task.escape": "\\",
  "pg_task.quote": "'",
  "pg_task.group": "it's \\ another",
  "pg_task.null": "nil",
} as const;

/** The same for those that managers read, as the log names them. */
const settings = {
  "pg_task.sleep": { value: 765, line: { sleepMs: 765 } },
  "pg_task.reset": { value: "2 min", line: { resetMs: 120_000 } },
  "pg_task.idle": { value: 61, line: { idle: 61 } },
  "pg_task.limit": { value: 62, line: { limit: 62 } },
  "pg_task.fetch": { value: 63, line: { fetch: 63 } },
  "pg_task.run": { value: 64, line: { run: 64 } },
  "pg_task.output": { value: "1kB", line: { outputLimit: 1024 } },
  "pg_task.crash": { value: 4, line: { crash: 4 } },
  "pg_work.close": { value: 65, line: { closeMs: 65 } },
  "pg_work.fetch": { value: 66, line: { batch: 66 } },
  "pg_work.restart": { value: 67, line: { restartMs: 67_000 } },
} as const;

/** What this file and that on entries change each in a test of their own. */
const others: readonly ParameterName[] = [
  "pg_task.plan",
  "pg_task.schema",
  "pg_task.table",
  "pg_task.data",
  "pg_task.user",
  "pg_conf.max",
  "pg_conf.close",
  "pg_conf.fetch",
  "pg_conf.restart",
  "pg_conf.grace",
  "pg_conf.threads",
  "pg_conf.name",
  "pg_conf.log",
  // In integration/webServer.
  "pg_http.listen",
  "pg_http.token",
];

it("leaves no parameter of the file out of these tests", () => {
  const inFile = parameters.filter(({ levels, type }) => {
    const all: readonly string[] = levels;
    return all.includes("file") && type !== "json";
  });
  const tested = [...Object.keys(columns), ...Object.keys(settings), ...others];
  assert.deepEqual(tested.toSorted(), inFile.map(({ name }) => name).toSorted());
});

it("gives the next insert every default that the file has now, and the old ones back", async () => {
  const program = await start();
  const plain = await client.query("INSERT INTO task (input) VALUES ('SELECT 1') RETURNING *");
  await reload(program, columns);
  await program.line("column defaults changed");
  const { rows } = await client.query<Record<string, unknown>>(
    `INSERT INTO task (input, plan) VALUES ('SELECT 1', now() + interval '1 day')
     RETURNING *, active::text, live::text, repeat::text, keep::text, timeout::text`,
  );
  for (const [name, value] of Object.entries(columns)) {
    assert.equal(rows[0]?.[name.replace("pg_task.", "")], value, name);
  }
  await reload(program, {});
  await program.line("column defaults changed", 2);
  const again = await client.query("INSERT INTO task (input) VALUES ('SELECT 1') RETURNING *");
  for (const name of Object.keys(columns)) {
    const column = name.replace("pg_task.", "");
    assert.deepEqual(again.rows[0]?.[column], plain.rows[0]?.[column], name);
  }
  assert.equal((await program.end()).code, 0);
});

it("goes by every setting of the file that managers read", async () => {
  const program = await start();
  const changed = Object.entries(settings).map(([name, { value }]) => [name, value]);
  await reload(program, Object.fromEntries(changed));
  const line = await program.line("settings changed");
  for (const [name, { line: expected }] of Object.entries(settings)) {
    for (const [key, value] of Object.entries(expected)) assert.equal(line[key], value, name);
  }
  assert.equal((await program.end()).code, 0);
});

it("shows another sleep in the manager's name, the entry's own above the database's", async () => {
  const program = await start({
    "pg_task.json": [{ data: database.target.database, user: "postgres" }],
  });
  await client.query(`ALTER DATABASE ${database.target.database} SET pg_task.sleep = 222`);
  program.child.kill("SIGHUP");
  await sleeps(222);
  await reload(program, {
    "pg_task.json": [{ data: database.target.database, user: "postgres", sleep: 333 }],
  });
  await sleeps(333);
  await client.query(`ALTER DATABASE ${database.target.database} RESET pg_task.sleep`);
  assert.equal((await program.end()).code, 0);
});

it("goes by another limit of output in sessions that are open, larger rows included", async () => {
  const program = await start({ "pg_task.output": 100 });
  const text = "SELECT repeat('x', 200)";
  assert.match((await ended(await insert(text))).error ?? "", /output exceeds 100 bytes/);
  await reload(program, { "pg_task.output": 20_000_000 });
  await program.line("settings changed");
  assert.equal((await ended(await insert(text))).output?.length, 200);
  const large = await ended(await insert("SELECT repeat('x', 15000000)"));
  assert.equal(large.error, null);
  assert.equal(large.output?.length, 15_000_000);
  await reload(program, { "pg_task.output": 50 });
  await program.line("settings changed", 2);
  assert.match((await ended(await insert(text))).error ?? "", /output exceeds 50 bytes/);
  assert.equal((await program.end()).code, 0);
});

it("runs more at once, then fewer, without disturbing what runs", async () => {
  const program = await start({ "pg_task.run": 2 });
  await insert("SELECT pg_sleep(3600)", 6);
  await runAtOnce(2);
  await reload(program, { "pg_task.run": 4 });
  await runAtOnce(4);
  await reload(program, { "pg_task.run": 1 });
  await program.line("settings changed", 2);
  await endRunning(1);
  await runAtOnce(3);
  await endRunning(3);
  await runAtOnce(1);
  await endAll(1);
  assert.equal((await program.end()).code, 0);
});

it("opens more sessions, then gives them back, as pg_conf.max is changed", async () => {
  const program = await start({ "pg_conf.max": 2 });
  await insert("SELECT pg_sleep(3600)", 8);
  await sessions(2);
  await program.line("more sessions wanted than granted, tasks wait");
  await reload(program, { "pg_conf.max": 5 });
  await sessions(5);
  await runAtOnce(5);
  await reload(program, { "pg_conf.max": 3 });
  // Tasks that run go on; their sessions go when they have ended.
  await runAtOnce(5);
  await endRunning(2);
  await sessions(3);
  await runAtOnce(3);
  await endAll(3);
  assert.equal((await program.end()).code, 0);
});

it("logs as much as it is told by now, in all of its threads", async () => {
  const program = await start();
  await ended(await insert("SELECT 1"));
  assert.deepEqual(program.said("task starts"), []);
  await reload(program, { "pg_conf.log": "debug", "pg_task.sleep": 901 });
  await sleeps(901);
  await ended(await insert("SELECT 1"));
  await program.line("task starts");
  await reload(program, { "pg_conf.log": "error", "pg_task.sleep": 902 });
  await sleeps(902);
  const count = program.lines.length;
  await ended(await insert("SELECT 1"));
  assert.equal(program.lines.length, count);
  await reload(program, { "pg_conf.log": "info" });
  assert.equal((await program.end()).code, 0);
  assert.equal(program.said("stopped").length, 1);
});

it("uses as many threads as it may by now", async () => {
  const program = await start({ "pg_conf.threads": 1, "pg_conf.log": "debug" });
  await insert("SELECT pg_sleep(3600)", 20);
  await runAtOnce(20);
  assert.equal(program.said("executor thread starts").length, 1);
  await reload(program, { "pg_conf.threads": 2, "pg_conf.log": "debug", "pg_task.sleep": 903 });
  await sleeps(903);
  await insert("SELECT pg_sleep(3600)", 40);
  await runAtOnce(60);
  assert.equal(program.said("executor thread starts").length, 2);
  await endAll(60);
  assert.equal((await program.end()).code, 0);
});

it("says which of the supervisor's own parameters changed", async () => {
  const program = await start();
  await replaceConfig(program, {
    url,
    "pg_conf.close": 59_000,
    "pg_conf.fetch": 3,
    "pg_conf.grace": 29_000,
    "pg_task.data": "other",
    "pg_task.user": "another",
  });
  assert.deepEqual((await program.line(reloaded))["parameters"], [
    "pg_task.data",
    "pg_task.user",
    "pg_conf.close",
    "pg_conf.fetch",
    "pg_conf.grace",
  ]);
  assert.equal((await program.end()).code, 0);
});
