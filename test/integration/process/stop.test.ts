import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { join } from "node:path";
import { beforeEach, it } from "node:test";
import { createDatabase } from "../../support/database.js";
import { PgTask, startPgTask } from "../../support/pgTask.js";
import { startProcess, type TestProcess } from "../../support/process.js";
import { lockClasses } from "../../../src/shared/postgres/advisoryLocks.js";
import { rowsOf, valueOf, only, insertTask, waitForRow, waitForRun, waitForState } from "../../support/tasks.js";
import { projectPath } from "../../support/project.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";
import { listen } from "../../support/listen.js";

const database = await createDatabase();
const client = await database.connect();

/** Starts a task that runs until the advisory lock `key` is released, and inserts another task into its group. */
async function startTask(key: number): Promise<{ id: string; next: string }> {
  await client.query("SELECT pg_advisory_lock($1)", [key]);
  const id = await insertTask(client, `SELECT pg_advisory_lock(${key})`, { group: `group${key}` });
  await waitForRun(client, id);
  return { id, next: await insertTask(client, "SELECT 1", { group: `group${key}` }) };
}

const unlock = (key: number) => client.query("SELECT pg_advisory_unlock($1)", [key]);

const startReady = (graceMs: number): Promise<TestProcess> =>
  startProcess({ config: { url: database.url, "pg_conf.grace": graceMs }, until: "ready" });

/** Starts a pg-task in the test's process, for what does not depend on who asks it to stop. */
const startHere = (graceMs: number): Promise<PgTask> => startPgTask({ url: database.url, "pg_conf.grace": graceMs });

const untouched = {
  state: "PLAN",
  take: null,
  owner: null,
  start: null,
  stop: null,
  pid: null,
  crash: 0,
  output: null,
  error: null,
};

const row = async (id: string): Promise<unknown> =>
  only(
    await rowsOf(client, `SELECT state::text, ${Object.keys(untouched).slice(1).join()} FROM task WHERE id = ${id}`),
  );

beforeEach(() => client.query("DELETE FROM task"));

it("does not report a connection attempt that the stop has ended", async () => {
  // This server never answers, so the manager is connecting until the end.
  const silent = createServer();
  const url = new URL(database.url);
  [url.hostname, url.port] = ["127.0.0.1", String(await listen(silent))];
  const program = new PgTask();
  program.launch({ url: database.url, "pg_task.json": [{ url: url.href }] });
  await once(silent, "connection");
  await program.stop();
  assert.deepEqual(program.linesMatching(/unavailable/), []);
});

for (const [index, signal] of (["SIGTERM", "SIGINT"] as const).entries()) {
  it(`finishes running tasks on ${signal} and starts no new ones`, async () => {
    const program = await startReady(60_000);
    const { id, next } = await startTask(index + 1);
    program.child.kill(signal);
    await program.line(/^stopping/);
    // The manager's lock is released as soon as the manager claims no more tasks.
    await waitForRow(
      client,
      `SELECT WHERE NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = $1::oid
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`,
      [lockClasses.manager],
    );
    await unlock(index + 1);
    await program.stopped();
    await waitForState(client, id, "DONE");
    assert.deepEqual(await row(next), untouched);
  });
}

it("releases tasks that still run when the grace period ends, leaving no trace in their rows", async () => {
  const program = await startHere(50);
  const { id, next } = await startTask(3);
  await program.stop();
  assert.deepEqual(await row(id), untouched);
  assert.deepEqual(await row(next), untouched);
  await unlock(3);
});

it("ignores a second signal within a second, and stops at once on a later one", async () => {
  const program = await startReady(60_000);
  const { id } = await startTask(4);
  program.child.kill("SIGTERM");
  await program.line(/^stopping: /);
  program.child.kill("SIGINT");
  // The rule is about elapsed time, so there is no event to wait for.
  await sleep(1100);
  assert.equal(program.linesMatching(/at once/).length, 0);
  program.child.kill("SIGTERM");
  await program.stopped();
  assert.equal(program.linesMatching(/^stopping: /).length, 1);
  assert.equal(program.linesMatching(/at once/).length, 1);
  assert.deepEqual(await row(id), untouched);
  await unlock(4);
});

it("leaves no task claimed when it stops while tasks are inserted", async () => {
  const program = await startHere(60_000);
  await client.query(
    `INSERT INTO task (input, "group") SELECT 'SELECT 1', 'many' || g % 100 FROM generate_series(1, 5000) AS g`,
  );
  await program.stop();
  const { rows } = await client.query(
    "SELECT DISTINCT state::text FROM task WHERE state NOT IN ('PLAN', 'DONE') OR (state = 'PLAN' AND owner IS NOT NULL)",
  );
  assert.deepEqual(rows, []);
});

/** Starts a stop while a claim is under way, and lets the claim end. Returns the id of the claimed task. */
async function stopDuringClaim(program: PgTask, input: string): Promise<string> {
  await client.query("SELECT pg_advisory_lock(8)");
  await client.query(`
    CREATE FUNCTION hold_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      WHILE NOT pg_try_advisory_xact_lock_shared(8) LOOP PERFORM pg_sleep(0.1); END LOOP;
      RETURN NEW;
    END $$;
    CREATE TRIGGER hold_claim BEFORE UPDATE ON task FOR EACH ROW
      WHEN (OLD.state = 'PLAN' AND NEW.state IN ('TAKE', 'WORK')) EXECUTE FUNCTION hold_claim()`);
  const id = await insertTask(client, input, { group: "claimed" });
  await waitForRow(
    client,
    `SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND application_name ~ '^pg_work'
     AND datname = current_database()`,
  );
  const stopped = program.stop();
  await unlock(8);
  await stopped;
  await client.query("DROP TRIGGER hold_claim ON task; DROP FUNCTION hold_claim()");
  return id;
}

it("finishes the tasks of a claim that is under way when it stops", async () => {
  const id = await stopDuringClaim(await startHere(60_000), "SELECT 7");
  assert.equal(await valueOf(client, "SELECT output FROM task WHERE id = $1 AND state = 'DONE'", [id]), "7");
});

it("releases the tasks of a claim that is under way when it stops without a grace period", async () => {
  await client.query("SELECT pg_advisory_lock(9)");
  const id = await stopDuringClaim(await startHere(0), "SELECT pg_advisory_lock(9)");
  assert.deepEqual(await row(id), untouched);
  await unlock(9);
});

it("stops when only npm receives the signal", async () => {
  const root = projectPath();
  const data = join(await temporaryFolder(), "data");
  const program = await startProcess({ command: ["npm", "start", "--", "--data", data], cwd: root });
  const { pid } = await program.line("ready");
  assert.notEqual(pid, program.pid);
  await program.end();
  assert.equal(program.linesMatching("stopped").length, 1);
  assert.throws(() => process.kill(pid, 0), { code: "ESRCH" });
});
