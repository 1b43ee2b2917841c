import assert from "node:assert/strict";
import { createDatabase, serverMajor } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { CuttingProxy, type Cut } from "../../support/cuttingProxy.js";
import { startPgTask } from "../../support/pgTask.js";
import { startProcess } from "../../support/process.js";
import { insertTask, valueOf, waitForRow, waitForState } from "../../support/tasks.js";

const database = await createDatabase();
const client = await database.connect();
const other = await createDatabase();
const there = await other.connect();
await there.query("CREATE TABLE effect (task bigint)");
await there.query("CREATE TABLE gate (open boolean)");

const proxy = await CuttingProxy.start(other.target.port);
const name = "cut";
const remoteOf = (user: string): string =>
  `host=127.0.0.1 port=${proxy.port} user=${user} dbname=${other.target.database} sslmode=disable application_name=${name}`;
const remote = remoteOf(other.target.user);
const effect = "INSERT INTO effect VALUES (current_setting('pg_task.id')::bigint) RETURNING 'ran'";
const settings = { "pg_task.crash": 1_000, "pg_task.sleep": 50, "pg_task.reset": "1 day" };

const effects = (id: string): Promise<number> =>
  valueOf(there, "SELECT count(*)::integer FROM effect WHERE task = $1", [id]);

const insert = (input = effect, more: Record<string, unknown> = {}): Promise<string> =>
  insertTask(client, input, { remote, ...more });

const config = { url: database.url, ...settings };
const pgTask = await startPgTask(config);

/**
 * Cuts the connection of one run after the other, each later than the one before, until one is over before its cut.
 *
 * @param roleOf the role of a run
 */
async function cutEverywhere(cut: Cut, step = 1, roleOf = async () => other.target.user): Promise<number> {
  for (let passed = 2; ; passed += step) {
    const more = { remote: remoteOf(await roleOf()) };
    proxy.plan({ name, cut, passed });
    const id = await insert(effect, { ...more, retry: 1, sqlstate: "{08}", backoff: "1 ms" });
    const { output, error } = await waitForState(client, id, "DONE");
    assert.equal(await effects(id), 1, `${cut} ${passed}`);
    assert.deepEqual([output, error], ["ran", null], `${cut} ${passed}`);
    if (proxy.hasCut) continue;
    proxy.plan(null);
    return passed;
  }
}

for (const cut of ["before", "after"] as const)
  test(`a run whose connection ends ${cut} any message takes effect once`, async (t) => {
    await waitForState(client, await insert(), "DONE");
    const last = await cutEverywhere(cut);
    t.diagnostic(`${last} places`);
    assert.ok(last > 8);
  });

test("a run whose connection goes silent, even while its ledger is created, takes effect once", async (t) => {
  let last = 0;
  const newRole = async (): Promise<string> => {
    last += 1;
    await there.query(`CREATE ROLE ledger_${database.target.database}_${last} SUPERUSER LOGIN`);
    return `ledger_${database.target.database}_${last}`;
  };
  t.diagnostic(`${await cutEverywhere("silent", 3, newRole)} messages`);
});

const ledger = "pg_task_ledger_postgres";
const entries = (id: string): Promise<{ done: boolean; home: string; run: string }[]> =>
  there
    .query<{ done: boolean; home: string; run: string }>(`SELECT done, home, run FROM ${ledger} WHERE id = $1`, [id])
    .then(({ rows }) => rows);

test("a run that writes has a proof under the home of its table, and one that only reads has none", async () => {
  const writing = await insert();
  const reading = await insert("BEGIN READ ONLY; SELECT nextval('s')");
  const unwrapped = await insert("VACUUM effect");
  const failing = await insert(`${effect}; SELECT 1 / 0`);
  await waitForState(client, writing, "DONE");
  const home = await valueOf<string>(client, "SELECT id FROM task_home");
  const run = await valueOf<string>(
    client,
    "SELECT (date_part('epoch', take) * 1000000)::bigint FROM task WHERE id = $1",
    [writing],
  );
  assert.deepEqual(await entries(writing), [{ done: true, home, run }]);
  await waitForState(client, reading, "FAIL");
  assert.deepEqual(await entries(reading), []);
  assert.equal((await waitForState(client, unwrapped, "DONE")).output, "VACUUM");
  assert.deepEqual(await entries(unwrapped), []);
  await waitForState(client, failing, "FAIL");
  assert.deepEqual([await effects(failing), await entries(failing)], [0, []]);
});

/** Returns the id of a local task that runs until the lock is released. */
async function insertGated(): Promise<string> {
  await client.query("SELECT pg_advisory_lock(1)");
  const id = await insertTask(client, "SELECT pg_advisory_xact_lock_shared(1)", { group: "gated" });
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'WORK'", [id]);
  return id;
}

test("a later run of another thread deletes old entries, but not those of tasks that are still claimed", async () => {
  const over = await insert();
  await waitForState(client, over, "DONE");
  await pgTask.stop();
  await pgTask.start(config);
  const claimed = await insertGated();
  await there.query(`
    INSERT INTO ${ledger} SELECT home, ${claimed}, 1, true, at FROM ${ledger} WHERE id = ${over};
    INSERT INTO ${ledger} SELECT home, ${over}, 2, false, at FROM ${ledger} WHERE id = ${over};
    UPDATE ${ledger} SET at = at - interval '1 hour'`);
  const young = await insert();
  await waitForState(client, young, "DONE");
  assert.deepEqual(await entries(over), []);
  assert.deepEqual([(await entries(young)).length, (await entries(claimed)).length], [1, 1]);
  await client.query("SELECT pg_advisory_unlock(1)");
});

test("a ledger that was dropped is created again, and nothing runs without it", async () => {
  await there.query(`DROP TABLE ${ledger}`);
  const id = await insert();
  await waitForState(client, id, "DONE");
  assert.deepEqual([await effects(id), (await entries(id)).map(({ done }) => done)], [1, [true]]);
});

test("a task that may begin a read-only transaction has its effect and its proof too", async () => {
  const id = await insert(`BEGIN READ WRITE /* not read only */; ${effect}`);
  await waitForState(client, id, "DONE");
  assert.deepEqual([await effects(id), (await entries(id)).length], [1, 1]);
});

test("a run that was fenced can no longer commit", async () => {
  await there.query("SELECT pg_advisory_lock(2)");
  const id = await insert(`SELECT pg_advisory_xact_lock_shared(2); ${effect}`);
  await waitForRow(there, "SELECT FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'advisory'", [
    name,
  ]);
  await there.query(
    `INSERT INTO ${ledger} VALUES ($1, $2, $3, false)`,
    await valueOf<string[]>(
      client,
      `SELECT ARRAY[h.id::text, t.id::text, (date_part('epoch', t.take) * 1000000)::bigint::text] FROM task AS t, task_home AS h
       WHERE t.id = $1`,
      [id],
    ),
  );
  await there.query("SELECT pg_advisory_unlock(2)");
  assert.match((await waitForState(client, id, "FAIL")).error ?? "", /duplicate key value violates unique constraint/);
  assert.equal(await effects(id), 0);
});

test("a process that takes over finds that a remote run was committed, or ends what is left of it", async () => {
  await pgTask.stop();
  const first = await startProcess({ config, until: "ready" });
  await there.query("SELECT pg_advisory_lock(3)");
  // Before PostgreSQL 14, no backend notices during a statement that its client is gone.
  const unaware = (await serverMajor()) >= 14 ? "SET client_connection_check_interval = 0;" : "";
  const input = `${unaware} ${effect}; SELECT pg_advisory_xact_lock_shared(3)`;
  const unfinished = await insert(input, { group: "unfinished" });
  await waitForRow(there, "SELECT FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'advisory'", [
    name,
  ]);
  // Nothing of a task's result can be written meanwhile.
  const committed = await insert(`SELECT pg_sleep(0.2); ${effect}`, { group: "committed" });
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND pid::text <> split_part(owner, ' ', 1)", [committed]);
  await client.query("BEGIN; LOCK TABLE task IN SHARE ROW EXCLUSIVE MODE");
  await waitForRow(there, "SELECT FROM effect WHERE task = $1", [committed]);
  await first.end("SIGKILL");
  await client.query("COMMIT");
  const second = await startProcess({ config });
  assert.equal((await waitForState(client, committed, "DONE")).output, null);
  // The gate is still closed: the first backend was ended, and the second run waits.
  await waitForRow(
    client,
    "SELECT FROM task WHERE id = $1 AND state = 'WORK' AND owner IS NOT NULL AND pid IS NOT NULL",
    [unfinished],
  );
  await second.line("orphaned tasks rescued");
  await there.query("SELECT pg_advisory_unlock(3)");
  await waitForState(client, unfinished, "DONE");
  assert.deepEqual([await effects(committed), await effects(unfinished)], [1, 1]);
  await second.stop();
});
