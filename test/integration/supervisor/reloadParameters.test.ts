import assert from "node:assert/strict";
import { beforeEach, it } from "node:test";
import { columnsWith } from "../../../src/shared/taskColumns.js";
import { createDatabase } from "../../support/database.js";
import type { LogLine } from "../../support/logLines.js";
import { managerSettings } from "../../support/managerComponents.js";
import { PgTask } from "../../support/pgTask.js";
import { waitForRow } from "../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const { url } = database;
await pgTask.start({ url });

beforeEach(() => client.query("DELETE FROM task"));

let sleepMs = 500;

/**
 * Reloads with this configuration. Resolves when the manager has applied it.
 *
 * @returns how many lines the log had before
 */
async function reload(config: Readonly<Record<string, unknown>>): Promise<number> {
  const from = pgTask.lines.length;
  sleepMs += 1;
  await pgTask.reload({ url, "pg_task.sleep": sleepMs, ...config });
  const applied = config["pg_task.sleep"] ?? sleepMs;
  await pgTask.logged((line) => line.msg === "settings changed" && line["sleepMs"] === applied, from);
  return from;
}

const logged = async (message: string, from: number): Promise<LogLine> =>
  await pgTask.logged(({ msg }) => msg === message, from);

/**
 * Resolves when the manager's application_name shows this pg_task.sleep, which is after it has applied all settings.
 */
async function waitForSleep(ms: number): Promise<void> {
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

/** FROM clause for running tasks that are inside pg_sleep, so that a cancel hits the input itself. */
const sleeping = `task JOIN pg_stat_activity AS activity USING (pid)
  WHERE task.state = 'WORK' AND activity.wait_event = 'PgSleep'`;

/** Waits until exactly this many tasks run. */
async function waitForRunning(count: number): Promise<void> {
  await waitForRow(client, `SELECT FROM ${sleeping} HAVING count(*) = $1`, [count]);
}

async function waitForSessions(count: number): Promise<void> {
  await waitForRow(
    client,
    `SELECT FROM pg_stat_activity
     WHERE datname = current_database() AND application_name ~ '^pg_task ' HAVING count(*) = $1`,
    [count],
  );
}

/** Cancels this many of the running tasks. */
async function endRunning(count: number): Promise<void> {
  // Backends leave pg_sleep for a moment when the server interrupts them, so they may not all be seen in it at once.
  const { ids, pids } = await waitForRow<{ ids: string[]; pids: number[] }>(
    client,
    `SELECT array_agg(id::text) AS ids, array_agg(pid) AS pids
     FROM (SELECT id, pid FROM ${sleeping} ORDER BY id LIMIT $1) AS chosen HAVING count(*) = $1`,
    [count],
  );
  await client.query("SELECT pg_cancel_backend(pid) FROM unnest($1::integer[]) AS pid", [pids]);
  for (const id of ids) await ended(id);
}

/** Deletes the planned tasks and cancels the running ones. */
async function endAll(count: number): Promise<void> {
  await client.query("DELETE FROM task WHERE state = 'PLAN'");
  await waitForRunning(count);
  await endRunning(count);
}

/** A value other than the default for each parameter that is a column default. */
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
  "pg_task.gap": "00:00:11",
  "pg_task.repeat": "1 mon",
  "pg_task.keep": "3 days",
  "pg_task.timeout": "00:00:10",
  "pg_task.retry": 5,
  "pg_task.backoff": "00:00:11",
  "pg_task.delimiter": ";",
  "pg_task.escape": "\\",
  "pg_task.quote": "'",
  "pg_task.group": "it's \\ another",
  "pg_task.null": "nil",
} as const;

/** For each parameter that managers read, a value other than the default, and how the log shows it. */
const settings = {
  "pg_task.sleep": { value: 765, line: { sleepMs: 765 } },
  "pg_task.reset": { value: "2 min", line: { resetMs: 120_000 } },
  "pg_task.idle": { value: 61, line: { idle: 61 } },
  "pg_task.limit": { value: 62, line: { limit: 62 } },
  "pg_task.fetch": { value: 63, line: { fetch: 63 } },
  "pg_task.run": { value: 64, line: { run: 64 } },
  "pg_task.output": { value: "1kB", line: { outputLimit: 1024 } },
  "pg_task.ceiling": { value: "3 min", line: { ceilingMs: 180_000 } },
  "pg_task.slow": { value: "4 min", line: { slowMs: 240_000 } },
  "pg_task.sqlstate": { value: "40, !40P01", line: { sqlstates: ["40", "!40P01"] } },
  "pg_task.crash": { value: 4, line: { crash: 4 } },
  "pg_work.close": { value: 65, line: { closeMs: 65 } },
  "pg_work.fetch": { value: 66, line: { batch: 66 } },
  "pg_work.restart": { value: 67, line: { restartMs: 67_000 } },
} as const;

it("covers every column default and every setting that managers read", () => {
  const defaults = columnsWith({ default: "parameter" }).map((name) => `pg_task.${name}`);
  assert.deepEqual(Object.keys(columns).toSorted(), defaults.toSorted());
  const lines = Object.values(settings).flatMap(({ line }) => Object.keys(line));
  assert.deepEqual(lines.toSorted(), Object.keys(managerSettings).toSorted());
});

it("applies the file's column defaults to the next insert, and restores the old ones", async () => {
  const plain = await client.query("INSERT INTO task (input) VALUES ('SELECT 1') RETURNING *");
  await logged("column defaults changed", await reload(columns));
  const { rows } = await client.query<Record<string, unknown>>(
    `INSERT INTO task (input, plan) VALUES ('SELECT 1', now() + interval '1 day')
     RETURNING *, active::text, live::text, gap::text, repeat::text, keep::text, timeout::text, backoff::text`,
  );
  for (const [name, value] of Object.entries(columns)) {
    assert.equal(rows[0]?.[name.replace("pg_task.", "")], value, name);
  }
  await logged("column defaults changed", await reload({}));
  const again = await client.query("INSERT INTO task (input) VALUES ('SELECT 1') RETURNING *");
  for (const name of Object.keys(columns)) {
    const column = name.replace("pg_task.", "");
    assert.deepEqual(again.rows[0]?.[column], plain.rows[0]?.[column], name);
  }
});

async function insertedZone(): Promise<unknown> {
  const text = "INSERT INTO task (input, rule) VALUES ('SELECT 1', '0 0 1 1 *') RETURNING zone";
  return (await client.query<{ zone: string }>(text)).rows[0]?.zone;
}

it("applies the file's zone to the next insert of a rule", async () => {
  const before = await insertedZone();
  await logged("triggers of optional columns replaced", await reload({ "pg_task.zone": "Asia/Kathmandu" }));
  assert.equal(await insertedZone(), "Asia/Kathmandu");
  await logged("triggers of optional columns replaced", await reload({}));
  assert.equal(await insertedZone(), before);
});

it("applies every setting of the file that managers read", async () => {
  const changed = Object.entries(settings).map(([name, { value }]) => [name, value]);
  const line = await logged("settings changed", await reload(Object.fromEntries(changed)));
  for (const [name, { line: expected }] of Object.entries(settings)) {
    for (const [key, value] of Object.entries(expected)) assert.deepEqual(line[key], value, name);
  }
});

it("shows the current sleep in the manager's name, the entry's over the database's", async () => {
  const { database: data, user } = database.target;
  await client.query(`ALTER DATABASE ${data} SET pg_task.sleep = 222`);
  await pgTask.reload({ url, "pg_task.json": [{ data, user }] });
  await waitForSleep(222);
  await pgTask.reload({ url, "pg_task.json": [{ data, user, sleep: 333 }] });
  await waitForSleep(333);
  await client.query(`ALTER DATABASE ${data} RESET pg_task.sleep`);
});

it("applies a new output limit in open sessions, also to large rows", async () => {
  await reload({ "pg_task.output": 100 });
  const text = "SELECT repeat('x', 200)";
  assert.match((await ended(await insert(text))).error ?? "", /output exceeds 100 bytes/);
  await reload({ "pg_task.output": 20_000_000 });
  assert.equal((await ended(await insert(text))).output?.length, 200);
  const large = await ended(await insert("SELECT repeat('x', 15000000)"));
  assert.equal(large.error, null);
  assert.equal(large.output?.length, 15_000_000);
  await reload({ "pg_task.output": 50 });
  assert.match((await ended(await insert(text))).error ?? "", /output exceeds 50 bytes/);
});

it("runs more tasks at once, then fewer, without interrupting any", async () => {
  await reload({ "pg_task.run": 2 });
  await insert("SELECT pg_sleep(3600)", 6);
  await waitForRunning(2);
  await reload({ "pg_task.run": 4 });
  await waitForRunning(4);
  await reload({ "pg_task.run": 1 });
  await endRunning(1);
  await waitForRunning(3);
  await endRunning(3);
  await waitForRunning(1);
  await endAll(1);
});

it("opens and closes sessions as pg_conf.max changes", async () => {
  const from = await reload({ "pg_conf.max": 2 });
  await insert("SELECT pg_sleep(3600)", 8);
  await waitForSessions(2);
  await logged("more sessions wanted than granted, tasks wait", from);
  await reload({ "pg_conf.max": 5 });
  await waitForSessions(5);
  await waitForRunning(5);
  await reload({ "pg_conf.max": 3 });
  // Running tasks continue. Surplus sessions close when their tasks have ended.
  await waitForRunning(5);
  await endRunning(2);
  await waitForSessions(3);
  await waitForRunning(3);
  await endAll(3);
});

it("logs which of the supervisor's own parameters changed", async () => {
  await reload({});
  const own = {
    "pg_task.sleep": sleepMs,
    "pg_conf.close": 59_000,
    "pg_conf.fetch": 3,
    "pg_conf.grace": 29_000,
    "pg_task.data": "other",
    "pg_task.user": "another",
    "pg_task.default": "1",
  };
  const from = pgTask.lines.length;
  await pgTask.reload({ url, ...own });
  assert.deepEqual((await logged("configuration reloaded", from))["parameters"], [
    "pg_task.data",
    "pg_task.user",
    "pg_task.default",
    "pg_conf.close",
    "pg_conf.fetch",
    "pg_conf.grace",
  ]);
});

it("applies a new log level in all threads", async () => {
  await reload({});
  await ended(await insert("SELECT 1"));
  assert.deepEqual(pgTask.linesMatching("task starts"), []);
  await reload({ "pg_conf.log": "debug" });
  await ended(await insert("SELECT 1"));
  await pgTask.line("task starts");
  await pgTask.reload({ url, "pg_conf.log": "error", "pg_task.sleep": 902 });
  await waitForSleep(902);
  const count = pgTask.lines.length;
  await ended(await insert("SELECT 1"));
  assert.equal(pgTask.lines.length, count);
  await pgTask.reload({ url, "pg_conf.log": "info" });
  await pgTask.stop();
  assert.equal(pgTask.linesMatching("stopped").length, 1);
});

it("applies a new number of threads", async () => {
  const from = pgTask.lines.length;
  const started = () => pgTask.lines.slice(from).filter(({ msg }) => msg === "executor thread started").length;
  await pgTask.start({ url, "pg_conf.threads": 1, "pg_conf.log": "debug" });
  await insert("SELECT pg_sleep(3600)", 20);
  await waitForRunning(20);
  assert.equal(started(), 1);
  await reload({ "pg_conf.threads": 2, "pg_conf.log": "debug" });
  await insert("SELECT pg_sleep(3600)", 40);
  await waitForRunning(60);
  assert.equal(started(), 2);
  await pgTask.stop({ graceMs: 0 });
});
