import assert from "node:assert/strict";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { processesOfFile, type TestProcess } from "../../support/process.js";
import { only } from "../../support/tasks.js";
import { TcpProxy } from "../../support/tcpProxy.js";
import { waitForRow } from "../../support/waitFor.js";

const startProcess = await processesOfFile();
const database = await createDatabase();
const client = await database.connect();
const gate = await database.connect();
const proxy = await TcpProxy.start(database.target.port, database.target.host);
const url = `postgresql://${database.target.user}@127.0.0.1:${proxy.port}/${database.target.database}`;
const config = { url, "pg_task.crash": 1, "pg_task.delete": false };

/** The lock behind the gate: while it is held, a statement of the manager that the test has chosen does not end. */
const gateLock = 7;
await client.query(`
  CREATE TABLE effect (task bigint);
  CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock_shared(${gateLock}); RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END; END $$`);

const effect = "INSERT INTO effect VALUES (current_setting('pg_task.id')::bigint)";

async function insert(columns: Readonly<Record<string, string | number>>): Promise<string> {
  const names = Object.keys(columns);
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (${names.map((name) => `"${name}"`).join(", ")}) VALUES (${names.map((_, index) => `$${index + 1}`).join(", ")}) RETURNING id`,
    Object.values(columns),
  );
  return only(rows).id;
}

async function start(): Promise<TestProcess> {
  const started = await startProcess({ config });
  await started.line("ready");
  return started;
}

/** The program that serves the table. A test goes on with the one that the test before has left. */
let program = await start();

/** Closes the gate in front of the statements that fire this trigger. */
async function close(trigger: string): Promise<void> {
  await client.query(`CREATE TRIGGER wait_at_gate ${trigger} EXECUTE FUNCTION wait_at_gate()`);
  await gate.query("SELECT pg_advisory_lock($1)", [gateLock]);
}

async function open(table: string): Promise<void> {
  await gate.query("SELECT pg_advisory_unlock($1)", [gateLock]);
  await client.query(`DROP TRIGGER wait_at_gate ON ${table}`);
}

/** Waits until the manager's connection waits at the gate. Returns its process id. */
async function managerAtGate(): Promise<number> {
  const { pid } = await waitForRow<{ pid: number }>(
    client,
    `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pg_work%'
       AND wait_event = 'advisory'`,
  );
  return pid;
}

async function terminate(pid: number): Promise<void> {
  await client.query("SELECT pg_terminate_backend($1)", [pid]);
  await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", [pid]);
}

/**
 * Ends something while the manager's statement is being executed, and calls `between` before anything can take its
 * place. Returns the program that runs afterwards.
 */
type End = (running: TestProcess, manager: number, between?: () => Promise<void>) => Promise<TestProcess>;

const endings: readonly (readonly [string, End])[] = [
  [
    "process",
    async (running, manager, between) => {
      await running.end("SIGKILL");
      await terminate(manager);
      await between?.();
      return await start();
    },
  ],
  [
    "manager's connection",
    async (running, manager, between) => {
      await terminate(manager);
      await between?.();
      return running;
    },
  ],
];

const done = async (id: string): Promise<unknown> =>
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'DONE'", [id]);

async function assertOnce(...ids: readonly string[]): Promise<void> {
  const { rows } = await client.query("SELECT task FROM effect WHERE task = ANY ($1) ORDER BY task", [ids]);
  assert.deepEqual(
    rows,
    ids.map((task) => ({ task })),
  );
  assert.deepEqual((await client.query("SELECT FROM task_after")).rowCount, 0);
}

for (const [what, end] of endings) {
  test(`when the ${what} dies while predecessors are looked up, they are looked up again, and each task runs once`, async () => {
    await close("BEFORE INSERT ON task_after FOR EACH ROW");
    const first = await insert({ input: effect, plan: "infinity", group: "first" });
    const second = await insert({ input: effect, after: `{${first}}`, group: "second" });
    program = await end(program, await managerAtGate());
    await open("task_after");
    await waitForRow(client, "SELECT FROM task_after WHERE task = $1", [second]);
    await client.query(`UPDATE task SET plan = now() WHERE id = ${first}`);
    await done(second);
    await assertOnce(first, second);
  });

  test(`when the ${what} dies while dependents are released, they are released later, and run once`, async () => {
    const first = await insert({ input: effect, plan: "infinity", group: "first" });
    const second = await insert({ input: effect, after: `{${first}}`, group: "second" });
    await waitForRow(client, "SELECT FROM task_after WHERE task = $1", [second]);
    await close("BEFORE DELETE ON task_after FOR EACH ROW");
    await client.query(`UPDATE task SET plan = now() WHERE id = ${first}`);
    program = await end(program, await managerAtGate());
    const { rows } = await client.query("SELECT state::text AS state, wait FROM task WHERE id = $1", [second]);
    assert.deepEqual(rows, [{ state: "PLAN", wait: 0 }]);
    await open("task_after");
    await done(second);
    await assertOnce(first, second);
  });

  test(`when the ${what} dies after dependents were released and before it learns of that, they run once`, async () => {
    const first = await insert({ input: effect, plan: "infinity", group: "first" });
    const second = await insert({ input: effect, after: `{${first}}`, group: "second" });
    await waitForRow(client, "SELECT FROM task_after WHERE task = $1", [second]);
    await close("BEFORE DELETE ON task_after FOR EACH ROW");
    await client.query(`UPDATE task SET plan = now() WHERE id = ${first}`);
    const manager = await managerAtGate();
    assert.equal(proxy.freeze("pg_work"), 1);
    await open("task_after");
    await waitForRow(client, "SELECT FROM task WHERE id = $1 AND wait IS NULL AND state = 'PLAN'", [second]);
    program = await end(program, manager);
    await done(second);
    await assertOnce(first, second);
  });

  test(`when the ${what} dies while an end is written, nothing of it is lost: the next run, the release, the pause of the group`, async () => {
    await client.query("DELETE FROM task");
    await close("BEFORE INSERT ON task FOR EACH ROW WHEN (NEW.parent IS NOT NULL)");
    const first = await insert({ input: effect, repeat: "1 year", group: "pausing", max: -3_600_000 });
    const second = await insert({ input: effect, after: `{${first}}`, group: "second" });
    const paused = await insert({ input: effect, group: "pausing", max: -3_600_000 });
    const manager = await managerAtGate();
    const { rows: before } = await client.query(
      "SELECT state::text AS state, (SELECT count(*)::integer FROM effect WHERE task = t.id) AS effects FROM task AS t WHERE id = $1",
      [first],
    );
    assert.deepEqual(before, [{ state: "WORK", effects: 1 }]);
    program = await end(program, manager, () => open("task"));
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
  const first = await insert({
    input: "SELECT nextval('tries'); SELECT 1/0",
    retry: 2,
    backoff: "1 ms",
    group: "first",
  });
  const second = await insert({ input: effect, after: `{${first}}`, upon: "fail", group: "second" });
  const manager = await managerAtGate();
  await program.end("SIGKILL");
  await terminate(manager);
  await open("task");
  const next = await start();
  await done(second);
  const { rows } = await client.query(
    "SELECT state::text AS state, attempt, crash, (SELECT last_value FROM tries) AS tries FROM task WHERE id = $1",
    [first],
  );
  // The try whose end was not written does not count.
  assert.deepEqual(rows, [{ state: "FAIL", attempt: 2, crash: 0, tries: "4" }]);
  assert.equal((await next.end()).code, 0);
});
