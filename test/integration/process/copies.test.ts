import assert from "node:assert/strict";
import { TaskClient } from "../../../src/library/index.js";
import { type Client } from "../../../src/shared/postgres/client.js";
import { cli } from "../../support/cli.js";
import { copyDatabase, createDatabase, type TestDatabase } from "../../support/database.js";
import { doctor } from "../../support/doctor.js";
import { test } from "../../support/limitedTest.js";
import { PgTask } from "../../support/pgTask.js";
import { valueOf, insertTask, waitForRow, waitForRun, waitForState } from "../../support/tasks.js";
import { connectTo } from "../../support/connectTo.js";

const [pgTask, other] = [new PgTask(), new PgTask()];
const original = await createDatabase();
await pgTask.start({ url: original.url });
await pgTask.stop();
const filling = await connectTo(original.target);
await filling.query(`
  INSERT INTO task (id, input, "group", rule) VALUES (101, 'SELECT 1', 'a', NULL), (102, 'SELECT 2', 'b', '* * * * *');
  INSERT INTO task (id, input, "group", state, owner, take, plan) VALUES (103, 'SELECT 3', 'c', 'WORK', '1 0 0', now(), now());
  INSERT INTO task_webhooks (name, states) VALUES ('ends', '{DONE}');
  INSERT INTO task_outbox (webhook, task, state, "group", stop) VALUES ('ends', 100, 'DONE', 'a', now())`);
await filling.end();
const [plain, stopping, label, edited, loaded] = [
  await copyDatabase(original),
  await copyDatabase(original),
  await createDatabase(),
  await createDatabase(),
  await createDatabase(),
];
/** What the log says of a copy. */
const held = "table is a copy, nothing starts";

/** Serves a database until it is told to stop, and returns once the log says that its table is a copy, and why. */
async function startHeld(server: PgTask, configuration: object): Promise<string> {
  const from = server.lines.length;
  await server.start(configuration);
  return String((await server.logged(({ msg }) => msg === held, from))["reason"]);
}

/** Inserts a task, and waits until it is DONE. */
const runOne = async (client: Client, input: string): Promise<unknown> =>
  await waitForState(client, await insertTask(client, input), "DONE");

/** The states of all tasks, by their ids. */
const states = async (database: TestDatabase): Promise<Record<string, string>> =>
  await valueOf(await database.connect(), "SELECT jsonb_object_agg(id, state) FROM task");

test("a copy of a database starts nothing, and everything says why and how to go on", async () => {
  await pgTask.start({ url: plain.url });
  const { reason, remedy } = await pgTask.line(held);
  assert.match(String(reason), /^the oid of its database is \d+, that of the original \(pg_conf\.name ".+"\) is \d+$/);
  assert.match(String(remedy), /pg-task accept-copy; with --stop-schedules or --stop-all/);
  const client = await plain.connect();
  const id = await new TaskClient(client).add("SELECT 4");
  const env = { DATABASE_URL: plain.url };
  const { code, lines } = await doctor(env);
  const home = lines.find(({ name }) => name === "home");
  const says = `the table is a copy, and nothing starts: ${String(reason)}`;
  assert.deepEqual([code, home?.level, home?.text], [4, "fail", says]);
  for (const args of [["status"], ["check"], ["why", id]])
    assert.match((await cli(args, { env })).stdout, /is a copy, and nothing starts: the oid of its database/);
  assert.deepEqual(await states(plain), { 101: "PLAN", 102: "PLAN", 103: "WORK", [id]: "PLAN" });
  assert.ok(!pgTask.linesMatching("serving table").some(({ name }) => name.includes(plain.target.database)));
});

test("accept-copy --stop-schedules ends the schedules, and the rest runs at once, also what the original ran", async () => {
  const env = { DATABASE_URL: plain.url };
  const accepted = await cli(["accept-copy", "--stop-schedules"], { env });
  assert.equal(
    accepted.stdout,
    '"public"."task" is at home here now; 1 task stopped; 1 task that the original was running will run again or be settled\n',
  );
  await pgTask.line("copy accepted");
  const client = await plain.connect();
  // The original tells it.
  assert.equal(await valueOf(client, "SELECT count(*)::integer FROM task_outbox"), 0);
  for (const id of ["101", "103"]) await waitForState(client, id, "DONE");
  assert.equal((await states(plain))["102"], "STOP");
  const again = await cli(["accept-copy"], { env });
  assert.deepEqual([again.code, again.stdout], [0, '"public"."task" is no copy, nothing was changed\n']);
  const { code, stderr } = await cli(["accept-copy", "--stop-all"], { env });
  assert.equal(code, 2, stderr);
  assert.match(stderr, /is no copy, so no task of it was stopped/);
  await pgTask.stop();
  await pgTask.start({ url: plain.url });
  assert.equal(pgTask.linesMatching(held).length, 1);
  await pgTask.stop();
});

test("accept-copy --stop-all stops everything, also what the original ran", async () => {
  const env = { DATABASE_URL: stopping.url };
  await startHeld(pgTask, { url: stopping.url });
  const { stdout } = await cli(["accept-copy", "task", "--stop-all", "--json"], { env });
  const { reason, ...result } = JSON.parse(stdout);
  assert.match(reason, /oid of its database/);
  assert.deepEqual(result, { table: '"public"."task"', accepted: true, stopped: 3, running: 0 });
  const client = await stopping.connect();
  await runOne(client, "SELECT 5");
  await waitForRow(client, "SELECT FROM task WHERE id = 103 AND owner IS NULL");
  const { 101: due, 102: schedule, 103: running } = await states(stopping);
  assert.deepEqual([due, schedule, running], ["STOP", "STOP", "STOP"]);
  await pgTask.stop();
});

test("a copy that is stopped while it is held ends at once", async () => {
  const client = await stopping.connect();
  await client.query('UPDATE task_home SET "table" = 1');
  assert.match(
    await startHeld(pgTask, { url: stopping.url }),
    /^its oid is \d+, that of the original \(pg_conf\.name ".+"\) is 1$/,
  );
  await pgTask.stop();
});

test("pg_task.home tells what nothing in the database does, also when it is reloaded", async () => {
  await pgTask.start({ url: label.url, "pg_task.home": "production" });
  const client = await label.connect();
  await runOne(client, "SELECT 1");
  assert.equal(await valueOf(client, "SELECT label FROM task_home"), "production");
  const from = pgTask.lines.length;
  await pgTask.reload({ url: label.url, "pg_task.home": "staging" });
  const { reason } = await pgTask.logged(({ msg }) => msg === held, from);
  assert.match(String(reason), /^pg_task\.home is "staging" here, and for the original \(.*\) it is "production"$/);
  const id = await insertTask(client, "SELECT 2");
  await pgTask.reload({ url: label.url, "pg_task.home": "production" });
  await waitForState(client, id, "DONE");
  await pgTask.stop();
  // A file that does not say where it is can tell no copy by its name.
  await pgTask.start({ url: label.url });
  await runOne(client, "SELECT 3");
  await pgTask.stop();
});

test("a home that was recorded without a name is another one than that of the file", async () => {
  const client = await label.connect();
  await client.query("UPDATE task_home SET label = NULL");
  assert.match(await startHeld(pgTask, { url: label.url, "pg_task.home": "staging" }), /it is not set$/);
  await pgTask.stop();
});

const place = `SELECT database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND version = current_setting('server_version_num')::integer / 10000 AND "table" = 'task'::regclass
  AND system = (SELECT system_identifier FROM pg_control_system()) AND cluster = 'mine' AS here FROM task_home`;

/** Serves the table once, and returns whether its home is recorded here. */
async function serveOnce(client: Client): Promise<boolean> {
  await other.start({ url: edited.url, "pg_conf.name": "mine" });
  await runOne(client, "SELECT 1");
  await other.stop();
  return await valueOf(client, place);
}

test("a table of an earlier version, after pg_upgrade, or made anew, is at home", async () => {
  const client = await edited.connect();
  assert.ok(await serveOnce(client));
  for (const change of [
    "DELETE FROM task_home",
    "UPDATE task_home SET version = version - 1, database = 1, system = 1",
    "DROP TABLE task",
    "DROP TABLE task_home",
  ]) {
    await client.query(change);
    assert.ok(await serveOnce(client), change);
  }
  assert.deepEqual(other.linesMatching(held), []);
});

test("rows loaded from another table make a copy, until they are removed from the home table", async () => {
  const client = await edited.connect();
  await client.query(
    `INSERT INTO task_home (id, system, database, "table", version, cluster)
     SELECT md5('other')::uuid, system + 1, database, "table", version, 'theirs' FROM task_home`,
  );
  assert.match(
    await startHeld(other, { url: edited.url, "pg_conf.name": "mine" }),
    /^the system identifier of its server is \d+, that of the original \(pg_conf\.name "theirs"\)/,
  );
  const id = await insertTask(client, "SELECT 1");
  await client.query("DELETE FROM task_home WHERE cluster = 'theirs'");
  await waitForState(client, id, "DONE");
  await other.stop();
});

/** A row of the home table of another table, as `pg_dump --data-only` brings it along. */
const foreignHome = `INSERT INTO public.task_home (id, system, database, "table", version, cluster)
  VALUES (gen_random_uuid(), 1, 1, 1, current_setting('server_version_num')::integer / 10000, 'theirs')`;

const unclaimed = (above: number): string =>
  `SELECT FROM task WHERE id > ${above} AND state = 'PLAN' AND owner IS NULL`;

/** Has the home table say again that the table is at home, and waits until its tasks run. */
async function acceptLoaded(database: TestDatabase, from: number): Promise<void> {
  const accepted = await cli(["accept-copy"], { env: { DATABASE_URL: database.url } });
  assert.match(accepted.stdout, /^"public"\."task" is at home here now; 0 tasks stopped/);
  await other.logged(({ msg }) => msg === "serving table", from);
}

test("tasks that are loaded into a table that is being served do not start if their home comes first", async () => {
  const client = await loaded.connect();
  await other.start({ url: loaded.url });
  await runOne(client, "SELECT 1");
  const from = other.lines.length;
  await client.query("SET search_path = ''");
  await client.query(foreignHome);
  await client.query(
    "INSERT INTO public.task (id, input) SELECT 1000 + i, 'SELECT 2' FROM generate_series(1, 100) AS i",
  );
  await client.query("RESET search_path");
  await other.logged(({ msg }) => msg === held, from);
  const env = { DATABASE_URL: loaded.url };
  const { code, lines } = await doctor(env);
  assert.equal(code, 4);
  assert.match(String(lines.find(({ level }) => level === "fail")?.text), /is a copy, and nothing starts: its oid is/);
  for (const args of [["status"], ["check"], ["why", "1001"]])
    assert.match((await cli(args, { env })).stdout, /is a copy, and nothing starts: its oid is/);
  assert.equal(await valueOf(client, "SELECT count(*)::integer FROM task WHERE id > 1000 AND state = 'PLAN'"), 100);
  assert.equal(other.lines.slice(from).filter(({ msg }) => msg === held).length, 1);
  await acceptLoaded(loaded, from);
  await waitForRow(client, "SELECT FROM task WHERE id > 1000 AND state = 'DONE' HAVING count(*) = 100");
});

test("tasks and their home that are loaded in one transaction do not start", async () => {
  const client = await loaded.connect();
  const from = other.lines.length;
  await client.query(
    `BEGIN; INSERT INTO task (id, input) SELECT 2000 + i, 'SELECT 2' FROM generate_series(1, 100) AS i; ${foreignHome}; COMMIT`,
  );
  await other.logged(({ msg }) => msg === held, from);
  // Whatever a claim had taken at that moment is given back.
  await waitForRow(client, `${unclaimed(2000)} HAVING count(*) = 100`);
  await acceptLoaded(loaded, from);
  await waitForRow(client, "SELECT FROM task WHERE id > 2000 AND state = 'DONE' HAVING count(*) = 100");
});

test("if the home of loaded tasks comes after them, it stops those that have not begun", async () => {
  const [client, locking] = [await loaded.connect(), await loaded.connect()];
  await locking.query("SELECT pg_advisory_lock(77)");
  await client.query(
    `INSERT INTO task (id, "group", input) SELECT 3000 + i, 'long', 'SELECT pg_advisory_xact_lock_shared(77)' FROM generate_series(1, 100) AS i`,
  );
  await waitForRun(client, "3001");
  const from = other.lines.length;
  await client.query(foreignHome);
  await other.logged(({ msg }) => msg === held, from);
  await waitForRow(client, `${unclaimed(3000)} HAVING count(*) = 99`);
  const env = { DATABASE_URL: loaded.url };
  const { lines } = await doctor(env);
  assert.match(String(lines.find(({ name }) => name === "home")?.text), /is a copy, and nothing more starts/);
  assert.match((await cli(["status"], { env })).stdout, /is a copy, and nothing more starts: [^]* 1 running/);
  await locking.query("SELECT pg_advisory_unlock(77)");
  // What had begun ends, and its result is written.
  await waitForState(client, "3001", "DONE");
  assert.match((await cli(["status"], { env })).stdout, /sessions +0, 0 running/);
  assert.equal(await valueOf(client, "SELECT count(*)::integer FROM task WHERE id > 3000 AND state = 'PLAN'"), 99);
  await acceptLoaded(loaded, from);
  await waitForRow(client, "SELECT FROM task WHERE id > 3000 AND state = 'DONE' HAVING count(*) = 100");
  await other.stop();
});

test("a home that is loaded without triggers is found by the next look at it", async () => {
  const client = await loaded.connect();
  await other.start({ url: loaded.url, "pg_task.reset": "1 s" });
  await runOne(client, "SELECT 1");
  const from = other.lines.length;
  await client.query(
    `BEGIN; ALTER TABLE task_home DISABLE TRIGGER ALL; ${foreignHome}; ALTER TABLE task_home ENABLE TRIGGER ALL; COMMIT`,
  );
  await other.logged(({ msg }) => msg === held, from);
  await other.stop();
});

test("without the right to read the system identifier, the other marks tell a copy", async () => {
  const client = await edited.connect();
  const role = `owner_${edited.target.database}`;
  await client.query(`CREATE ROLE ${role} LOGIN; REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC;
    CREATE SCHEMA theirs AUTHORIZATION ${role}`);
  try {
    const url = edited.url.replace(`${edited.target.user}@`, `${role}@`);
    await other.start({ url, "pg_task.schema": "theirs" });
    await waitForRow(client, "SELECT FROM theirs.task_home WHERE system IS NULL");
    await other.stop();
    await client.query("UPDATE theirs.task_home SET database = 1");
    assert.match(await startHeld(other, { url, "pg_task.schema": "theirs" }), /^the oid of its database/);
    await other.stop();
  } finally {
    await client.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
  }
});
