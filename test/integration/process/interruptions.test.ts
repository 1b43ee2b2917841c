import assert from "node:assert/strict";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { processesOfFile, type TestProcess } from "../../support/process.js";
import {
  valueOf,
  rowsOf,
  recordEffect as effect,
  Tasks,
  type NewTask,
  waitForRow,
  waitForRun,
} from "../../support/tasks.js";
import { TcpProxy } from "../../support/tcpProxy.js";

const startProcess = await processesOfFile();
const database = await createDatabase();
const client = await database.connect();
const gate = await database.connect();
const tasks = await Tasks.create(client);
const proxy = await TcpProxy.start(database.target.port, database.target.host);
const url = `postgresql://${database.target.user}@127.0.0.1:${proxy.port}/${database.target.database}`;
const config = { url, "pg_task.crash": 1, "pg_task.delete": false };
const start = (more: object = {}): Promise<TestProcess> =>
  startProcess({ config: { ...config, ...more }, until: "ready" });

/** The lock behind the gate. While it is held, a statement that the test has chosen does not end. */
const gateLock = 7;
await client.query(`
  CREATE TABLE effect (task bigint);
  CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock_shared(${gateLock}); RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END; END $$`);

/** Closes the gate, in front of the statements that fire this trigger if one is given. */
async function close(trigger?: string): Promise<void> {
  if (trigger !== undefined)
    await client.query(`CREATE TRIGGER wait_at_gate ${trigger} EXECUTE FUNCTION wait_at_gate()`);
  await gate.query("SELECT pg_advisory_lock($1)", [gateLock]);
}

/** Opens the gate, and removes the trigger of this table. */
async function open(table?: string): Promise<void> {
  await gate.query("SELECT pg_advisory_unlock($1)", [gateLock]);
  if (table !== undefined) await client.query(`DROP TRIGGER wait_at_gate ON ${table}`);
}

const ofManager = "datname = current_database() AND application_name LIKE 'pg_work%'";

/** Waits until the manager's connection waits at the gate. Returns its process id. */
async function managerAtGate(): Promise<number> {
  const atGate = `SELECT pid FROM pg_stat_activity WHERE ${ofManager} AND wait_event = 'advisory'`;
  return (await waitForRow<{ pid: number }>(client, atGate)).pid;
}

async function terminate(pid: number | null): Promise<void> {
  await client.query("SELECT pg_terminate_backend($1)", [pid]);
  await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", [pid]);
}

/** The program that serves the table. A test goes on with the one that the test before has left. */
let program = await start({ "pg_task.crash": 3, "pg_conf.grace": 1 });

/**
 * Ends something while the manager's statement is being executed, and calls `between` before anything can take its
 * place.
 */
const endings: Readonly<Record<string, (manager: number, between?: () => Promise<void>) => Promise<void>>> = {
  process: async (manager, between) => {
    await program.end("SIGKILL");
    await terminate(manager);
    await between?.();
    program = await start();
  },
  "manager's connection": async (manager, between) => {
    await terminate(manager);
    await between?.();
  },
};

const done = async (id: string): Promise<unknown> => await tasks.until([id], ({ state }) => state === "DONE");

/** The rule of a task that is due at once, and whose next time is computed when the gate opens. */
const gated = `SELECT CASE current_setting('pg_task.state') WHEN 'PLAN' THEN now() ELSE (
  SELECT timestamptz '2100-01-01Z' + interval '1 second' * current_setting('pg_task.id')::integer
  FROM pg_advisory_xact_lock_shared(${gateLock})) END`;

/** Runs a task with such a rule. Returns its id, and its successor and the successor's backend once the query runs. */
async function startRule(): Promise<{ id: string; next: string; pid: number | null; owner: string | null }> {
  await close();
  const id = await tasks.add(effect, { rule: gated, active: "1 hour" });
  const { next } = await tasks.successor<{ next: string }>(id, "n.id AS next");
  const { pid, owner } = await waitForRun(client, next);
  return { id, next, pid, owner };
}

/** Asserts that the successor gets the rule's time and a crash count of 0, and that it is the only one. */
async function assertPlanned({ id, next }: { id: string; next: string }): Promise<void> {
  const planned = "SELECT FROM task WHERE id = $1 AND state = 'PLAN' AND plan > now() AND owner IS NULL";
  await waitForRow(client, planned, [next]);
  const { rows } = await client.query(
    `SELECT id, wait, due, crash, plan = timestamptz '2100-01-01Z' + interval '1 second' * parent AS planned
     FROM task WHERE parent = $1`,
    [id],
  );
  assert.deepEqual(rows, [{ id: next, wait: null, due: null, crash: 0, planned: true }]);
  await assertOnce(id);
}

const anotherRun = "SELECT FROM task WHERE id = $1 AND state = 'WORK' AND owner <> $2";

test("when the session dies while a query of a rule runs, the query runs again", async () => {
  const computing = await startRule();
  await terminate(computing.pid);
  await waitForRow(client, `${anotherRun} AND crash = 1`, [computing.next, computing.owner]);
  await open();
  await assertPlanned(computing);
});

test("when the manager's connection dies while a query of a rule runs, its answer is written later", async () => {
  const computing = await startRule();
  await terminate(await tasks.value(`SELECT pid FROM pg_stat_activity WHERE ${ofManager}`));
  await open();
  await assertPlanned(computing);
});

for (const signal of ["SIGTERM", "SIGKILL"] as const) {
  test(`when the process ends by ${signal} while a query of a rule runs, another process runs the query`, async () => {
    const computing = await startRule();
    await program.end(signal);
    // Before PostgreSQL 14, a backend notices only at the end of the statement that its client is gone.
    await terminate(computing.pid);
    program = await start();
    await waitForRow(client, anotherRun, [computing.next, computing.owner]);
    await open();
    await assertPlanned(computing);
  });
}

async function assertOnce(...ids: readonly string[]): Promise<void> {
  assert.deepEqual(
    await rowsOf(client, "SELECT task FROM effect WHERE task = ANY ($1) ORDER BY task", [ids]),
    ids.map((task) => ({ task })),
  );
  assert.deepEqual(await tasks.rows("SELECT FROM task_after"), []);
}

/** A task that is due, and whose rule's next time does not come during the tests. */
const yearly = { rule: "0 0 1 1 *", zone: "UTC", plan: "2001-01-01Z", active: "100 years", overlap: true };
const successors = "BEFORE INSERT ON task FOR EACH ROW WHEN (NEW.parent IS NOT NULL)";

/** Waits until the task is DONE. Asserts that it has one effect, and one successor, which carries the schedule. */
async function assertGoesOn(id: string): Promise<void> {
  await done(id);
  const planned = `n.state = 'PLAN' AND n.rule = '${yearly.rule}' AND n.plan > now()`;
  assert.ok(await tasks.successorHolds(id, `t.crash = 0 AND t.rule IS NULL AND ${planned}`));
  await assertOnce(id);
}

/** Inserts a task that is not due, and one that waits for it. Returns both once the first one has been looked up. */
async function insertPair(): Promise<readonly [string, string]> {
  const first = await tasks.add(effect, { plan: "infinity" });
  const second = await tasks.add(effect, { after: `{${first}}` });
  await waitForRow(client, "SELECT FROM task_after WHERE task = $1", [second]);
  return [first, second];
}

const makeDue = (id: string): Promise<void> => tasks.set(id, "plan = now()");

for (const [what, end] of Object.entries(endings)) {
  test(`when the ${what} dies between the claim and the planning of the next run, the task keeps its schedule`, async () => {
    await close(successors);
    const id = await tasks.add(effect, yearly);
    await end(await managerAtGate());
    assert.equal(await valueOf(client, "SELECT rule FROM task WHERE id = $1 OR parent = $1", [id]), yearly.rule);
    await open("task");
    await assertGoesOn(id);
  });

  test(`when the ${what} dies between the planning of the next run and the start, the successor has the schedule`, async () => {
    await close(successors);
    const id = await tasks.add(effect, yearly);
    const manager = await managerAtGate();
    assert.notEqual(proxy.freeze("pg_work"), 0);
    await open("task");
    await waitForRow(client, "SELECT FROM task WHERE parent = $1", [id]);
    await end(manager);
    await assertGoesOn(id);
  });

  test(`when the ${what} dies while predecessors are looked up, they are looked up again, and each task runs once`, async () => {
    await close("BEFORE INSERT ON task_after FOR EACH ROW");
    const first = await tasks.add(effect, { plan: "infinity" });
    const second = await tasks.add(effect, { after: `{${first}}` });
    await end(await managerAtGate());
    await open("task_after");
    await waitForRow(client, "SELECT FROM task_after WHERE task = $1", [second]);
    await makeDue(first);
    await done(second);
    await assertOnce(first, second);
  });

  test(`when the ${what} dies while dependents are released, they are released later, and run once`, async () => {
    const [first, second] = await insertPair();
    await close("BEFORE DELETE ON task_after FOR EACH ROW");
    await makeDue(first);
    await end(await managerAtGate());
    const { rows } = await client.query("SELECT state::text AS state, wait FROM task WHERE id = $1", [second]);
    assert.deepEqual(rows, [{ state: "PLAN", wait: 0 }]);
    await open("task_after");
    await done(second);
    await assertOnce(first, second);
  });

  test(`when the ${what} dies after dependents were released and before it learns of that, they run once`, async () => {
    const [first, second] = await insertPair();
    await close("BEFORE DELETE ON task_after FOR EACH ROW");
    await makeDue(first);
    const manager = await managerAtGate();
    assert.notEqual(proxy.freeze("pg_work"), 0);
    await open("task_after");
    await waitForRow(client, "SELECT FROM task WHERE id = $1 AND wait IS NULL AND state = 'PLAN'", [second]);
    await end(manager);
    await done(second);
    await assertOnce(first, second);
  });

  test(`when the ${what} dies while an end is written, nothing of it is lost: the next run, the release, the pause of the group`, async () => {
    await client.query("DELETE FROM task");
    await close(successors);
    const pausing = { group: "pausing", max: -3_600_000 };
    const first = await tasks.add(effect, { repeat: "1 year", ...pausing });
    const second = await tasks.add(effect, { after: `{${first}}` });
    const paused = await tasks.add(effect, pausing);
    const manager = await managerAtGate();
    assert.equal((await tasks.row(first)).state, "WORK");
    assert.equal((await client.query("SELECT FROM effect WHERE task = $1", [first])).rowCount, 1);
    await end(manager, () => open("task"));
    await done(first);
    await done(second);
    await assertOnce(first, second);
    const { rows } = await client.query(
      `SELECT (SELECT count(*)::integer FROM task WHERE parent = $1 AND state = 'PLAN' AND repeat > '0') AS next,
         state::text AS state, plan > now() + interval '50 min' AS paused FROM task WHERE id = $2`,
      [first, paused],
    );
    assert.deepEqual(rows, [{ next: 1, state: "PLAN", paused: true }]);
  });
}

test("a task that failed just before the process died is tried again as often as retry says, and its dependents wait", async () => {
  await client.query("CREATE SEQUENCE tries");
  await close("BEFORE UPDATE OF attempt ON task FOR EACH ROW WHEN (NEW.attempt = 1)");
  const failing: Omit<NewTask, "input"> = { retry: 2, backoff: "1 ms" };
  const first = await tasks.add("SELECT nextval('tries'); SELECT 1/0", failing);
  const second = await tasks.add(effect, { after: `{${first}}`, upon: "fail" });
  await endings["process"]?.(await managerAtGate(), () => open("task"));
  await done(second);
  const { rows } = await client.query(
    "SELECT state::text AS state, attempt, crash, (SELECT last_value FROM tries) AS tries FROM task WHERE id = $1",
    [first],
  );
  // The try whose end was not written does not count.
  assert.deepEqual(rows, [{ state: "FAIL", attempt: 2, crash: 0, tries: "4" }]);
  await program.stop();
});
