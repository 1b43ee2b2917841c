import assert from "node:assert/strict";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { processesOfFile, type TestProcess } from "../../support/process.js";
import { only } from "../../support/tasks.js";
import { TcpProxy } from "../../support/tcpProxy.js";
import { waitForRow, waitForRun } from "../../support/waitFor.js";

const startProcess = await processesOfFile();
const database = await createDatabase();
const client = await database.connect();
const gate = await database.connect();
const proxy = await TcpProxy.start(database.target.port, database.target.host);
const url = `postgresql://${database.target.user}@127.0.0.1:${proxy.port}/${database.target.database}`;
const config = { url, "pg_task.crash": 1 };

/** The lock behind the gate: while it is held, no successor is inserted, and no query of a rule returns. */
const gateLock = 7;
await client.query(`
  CREATE TABLE effect (task bigint);
  CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock_shared(${gateLock}); RETURN NEW; END $$;
  CREATE TRIGGER wait_at_gate BEFORE INSERT ON task FOR EACH ROW WHEN (NEW.parent IS NOT NULL)
    EXECUTE FUNCTION wait_at_gate()`);

const close = () => gate.query("SELECT pg_advisory_lock($1)", [gateLock]);
const open = () => gate.query("SELECT pg_advisory_unlock($1)", [gateLock]);

const effect = "INSERT INTO effect VALUES (current_setting('pg_task.id')::bigint)";
/** The rule's next time does not come during the tests. */
const yearly = { rule: "0 0 1 1 *", zone: "UTC", plan: "2001-01-01Z", active: "100 years" };

async function insert(columns: Readonly<Record<string, string | number | boolean>>): Promise<string> {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (${Object.keys(columns).join(", ")})
     VALUES (${Object.keys(columns)
       .map((_, index) => `$${index + 1}`)
       .join(", ")}) RETURNING id`,
    Object.values(columns),
  );
  return only(rows).id;
}

async function startReady(content: object = config): Promise<TestProcess> {
  const started = await startProcess({ config: content });
  await started.line("ready");
  return started;
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

async function terminate(pid: number | null): Promise<void> {
  await client.query("SELECT pg_terminate_backend($1)", [pid]);
  await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", [pid]);
}

/** Waits until the task is DONE. Asserts that it has one effect, and one successor, which carries the schedule. */
async function assertGoesOn(id: string, crash = 0): Promise<void> {
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'DONE'", [id]);
  const { rows } = await client.query(
    `SELECT t.crash, t.rule, n.state::text AS state, n.rule AS next, n.plan > now() AS later,
       (SELECT count(*)::integer FROM effect WHERE task = t.id) AS effects
     FROM task AS t JOIN task AS n ON n.parent = t.id WHERE t.id = $1`,
    [id],
  );
  assert.deepEqual(rows, [{ crash, rule: null, state: "PLAN", next: yearly.rule, later: true, effects: 1 }]);
}

/** Ends something while the successor is being planned. Returns the program that runs afterwards. */
type End = (running: TestProcess, manager: number) => Promise<TestProcess>;

const endings: readonly (readonly [string, End])[] = [
  [
    "process",
    async (running, manager) => {
      await running.end("SIGKILL");
      await terminate(manager);
      return await startReady();
    },
  ],
  [
    "manager's connection",
    async (running, manager) => {
      await terminate(manager);
      return running;
    },
  ],
];

/** The program that serves the table. A test goes on with the one that the test before has left. */
let program = await startReady({ ...config, "pg_task.crash": 3, "pg_conf.grace": 1 });

/** The rule of a task that is due at once, and whose next time is computed when the gate opens. */
const gated = `SELECT CASE current_setting('pg_task.state') WHEN 'PLAN' THEN now() ELSE (
  SELECT timestamptz '2100-01-01Z' + interval '1 second' * current_setting('pg_task.id')::integer
  FROM pg_advisory_xact_lock_shared(${gateLock})) END`;

/** Runs a task with such a rule. Returns its id, and its successor and the successor's backend once the query runs. */
async function startRule(): Promise<{ id: string; next: string; pid: number | null; owner: string | null }> {
  // The trigger would keep the successor from being inserted.
  await client.query("ALTER TABLE task DISABLE TRIGGER wait_at_gate");
  await close();
  const id = await insert({ input: effect, rule: gated, active: "1 hour" });
  const { next } = await waitForRow<{ next: string }>(client, "SELECT id AS next FROM task WHERE parent = $1", [id]);
  const { pid, owner } = await waitForRun(client, next);
  return { id, next, pid, owner };
}

/** Asserts that the successor gets the rule's time and a crash count of 0, and that it is the only one. */
async function assertPlanned({ id, next }: { id: string; next: string }): Promise<void> {
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'PLAN' AND plan > now() AND owner IS NULL", [
    next,
  ]);
  const { rows } = await client.query(
    `SELECT id, wait, due, crash, plan = timestamptz '2100-01-01Z' + interval '1 second' * parent AS planned
     FROM task WHERE parent = $1`,
    [id],
  );
  assert.deepEqual(rows, [{ id: next, wait: null, due: null, crash: 0, planned: true }]);
  assert.equal((await client.query("SELECT FROM effect WHERE task = $1", [id])).rowCount, 1);
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
  const { rows } = await client.query<{ pid: number }>(
    `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pg_work%'`,
  );
  await terminate(only(rows).pid);
  await open();
  await assertPlanned(computing);
});

for (const signal of ["SIGTERM", "SIGKILL"] as const) {
  test(`when the process ends by ${signal} while a query of a rule runs, another process runs the query`, async () => {
    const computing = await startRule();
    await program.end(signal);
    // Before PostgreSQL 14, a backend notices only at the end of the statement that its client is gone.
    await terminate(computing.pid);
    program = await startReady();
    await waitForRow(client, anotherRun, [computing.next, computing.owner]);
    await open();
    await assertPlanned(computing);
  });
}

for (const [what, end] of endings) {
  test(`when the ${what} dies between the claim and the planning of the next run, the task keeps its schedule`, async () => {
    await client.query("ALTER TABLE task ENABLE TRIGGER wait_at_gate");
    await close();
    const id = await insert({ input: effect, overlap: true, ...yearly });
    const manager = await managerAtGate();
    program = await end(program, manager);
    const { rows } = await client.query("SELECT rule FROM task WHERE id = $1 OR parent = $1", [id]);
    assert.deepEqual(rows, [{ rule: yearly.rule }]);
    await open();
    await assertGoesOn(id);
  });

  test(`when the ${what} dies between the planning of the next run and the start, the successor has the schedule`, async () => {
    await client.query("ALTER TABLE task ENABLE TRIGGER wait_at_gate");
    await close();
    const id = await insert({ input: effect, overlap: true, ...yearly });
    const manager = await managerAtGate();
    assert.equal(proxy.freeze("pg_work"), 1);
    await open();
    await waitForRow(client, "SELECT FROM task WHERE parent = $1", [id]);
    program = await end(program, manager);
    await assertGoesOn(id);
  });
}

test("schedules go on while one manager hands over to another", async () => {
  await client.query("ALTER TABLE task DISABLE TRIGGER wait_at_gate");
  const leader = program;
  const standby = await startProcess({ config });
  await standby.line("standby");
  await close();
  const waits = `${effect}; SELECT pg_advisory_xact_lock_shared(${gateLock})`;
  const cron = { rule: "* * * * * *", zone: "UTC", active: "1 hour" };
  const grouped = (group: string) => ({ ...cron, '"group"': group });
  const roots = {
    catchup: await insert({ input: effect, catchup: true, ...grouped("catchup") }),
    alone: await insert({ input: waits, overlap: true, max: 0, ...grouped("alone") }),
    beside: await insert({ input: waits, overlap: true, max: 1, ...grouped("beside") }),
    waits: await insert({ input: waits, catchup: true, ...grouped("waits") }),
  };
  for (const id of [roots.alone, roots.beside, roots.waits]) await waitForRun(client, id);
  leader.child.kill("SIGTERM");
  await standby.line("ready");
  const passed = `SELECT FROM task WHERE "group" = $1 AND state = 'DONE' AND plan > $2`;
  const now = async () => only((await client.query<{ now: string }>("SELECT now()::text AS now")).rows).now;
  await waitForRow(client, passed, ["catchup", await now()]);
  const running = `SELECT FROM task WHERE "group" = $1 AND state = 'WORK' HAVING count(*) = $2`;
  await waitForRow(client, running, ["beside", 2]);
  // The runs of the old leader still count towards the limits of their groups.
  const { rows } = await client.query(
    `SELECT "group", count(*) FILTER (WHERE state = 'WORK')::integer AS running FROM task
     WHERE "group" IN ('alone', 'beside', 'waits') GROUP BY "group" ORDER BY "group"`,
  );
  assert.deepEqual(rows, [
    { group: "alone", running: 1 },
    { group: "beside", running: 2 },
    { group: "waits", running: 1 },
  ]);
  await open();
  assert.equal((await leader.exit).code, 0);
  const since = await now();
  for (const group of Object.keys(roots)) await waitForRow(client, passed, [group, since]);
  for (const [group, root] of Object.entries(roots)) await assertUnbroken(group, root);
  await client.query(
    `UPDATE task SET rule = NULL, zone = NULL, state = 'STOP' WHERE state = 'PLAN' AND rule = '* * * * * *'`,
  );
  assert.equal((await standby.end()).code, 0);
});

/** Asserts that the rows of a schedule are one chain that goes on, and that with `catchup` it misses no second. */
async function assertUnbroken(group: string, root: string): Promise<void> {
  const { rows } = await client.query(
    `WITH RECURSIVE run AS (
       SELECT t.*, 0 AS nth, NULL::interval AS step FROM task AS t WHERE id = $2
       UNION ALL SELECT t.*, nth + 1, t.plan - r.plan FROM task AS t JOIN run AS r ON t.parent = r.id
     )
     SELECT count(*) = count(DISTINCT nth) AS chained, count(*) FILTER (WHERE rule IS NOT NULL AND state::text IN ('PLAN', 'TAKE', 'WORK'))::integer AS carriers,
       coalesce(min(step) >= '1 second' AND (NOT coalesce(bool_or(catchup), false) OR max(step) = '1 second'), false) AS steady,
       bool_and((SELECT count(*) FROM effect WHERE task = run.id) BETWEEN (state::text = 'DONE')::integer AND 1) AS once,
       count(*) = (SELECT count(*) FROM task WHERE "group" = $1) AS whole
     FROM run`,
    [group, root],
  );
  assert.deepEqual(rows, [{ chained: true, carriers: 1, steady: true, once: true, whole: true }], group);
}
