import assert from "node:assert/strict";
import { until } from "../support/changes.js";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { startProcess } from "../support/process.js";
import { Tasks } from "../support/tasks.js";

const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
// A run that is rolled back leaves no row in this table. The function `alone` therefore makes a run fail if another run
// of the same task is active.
await client.query(`
  CREATE TABLE run (task bigint, pid integer, start timestamptz, stop timestamptz);
  CREATE FUNCTION alone(task bigint) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
    IF NOT pg_try_advisory_xact_lock(task) THEN RAISE 'task % runs in two sessions at once', task; END IF;
  END $$`);

interface Ended {
  readonly id: number;
  readonly group: string;
  readonly max: number;
  readonly start: number;
  readonly stop: number;
  readonly state: string;
}

const groups = 4;
/** An advisory lock that every task takes in the middle of its run. */
const gate = 815;
const count = 80;

/** Returns a seeded generator of pseudo-random integers. Each call returns one from 0 to `below` (exclusive). */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Inserts tasks with random group, max and duration. All become due at the same time, and each records its runs. */
async function insertRandom(seed: number): Promise<string[]> {
  const random = numbers(seed);
  await client.query("BEGIN");
  const ids = await tasks.insert(
    ...Array.from({ length: count }, () => ({
      input: `SELECT alone(current_setting('pg_task.id')::bigint);
        INSERT INTO run SELECT current_setting('pg_task.id')::bigint, pg_backend_pid(), clock_timestamp();
        SELECT pg_advisory_xact_lock_shared(${gate}), pg_sleep(${random(25) / 1000});
        UPDATE run SET stop = clock_timestamp() WHERE task = current_setting('pg_task.id')::bigint AND pid = pg_backend_pid()`,
      group: `seed ${seed} group ${random(groups)}`,
      max: random(7) - 2,
      count: random(3),
    })),
  );
  await client.query("COMMIT");
  return ids;
}

/**
 * Waits until the tasks have ended. Returns the start and stop of each: from its row, or as recorded by the run itself.
 * What the run recorded is correct even if the manager found the run only after its start.
 */
async function ended(ids: readonly string[], source: "row" | "run" = "row"): Promise<Ended[]> {
  await tasks.ended(...ids);
  const of = source === "row" ? "task" : "run";
  const { rows } = await client.query<Ended>(
    `SELECT id::integer, "group", max, state::text, error,
       coalesce((extract(epoch FROM ${of}.start) * 1e6)::float8, 'NaN') AS start,
       coalesce((extract(epoch FROM ${of}.stop) * 1e6)::float8, 'NaN') AS stop
     FROM task LEFT JOIN run ON run.task = task.id
     WHERE id = ANY ($1::bigint[]) ORDER BY ${of}.start`,
    [ids],
  );
  assert.equal(rows.length, ids.length, "each has had its effect once");
  assert.deepEqual(
    rows.filter(({ state, start, stop }) => state !== "DONE" || Number.isNaN(start + stop)),
    [],
  );
  return rows;
}

/** Asserts that, when each task started, no more other tasks of its group were running than its max allows. */
function assertWithinLimits(rows: readonly Ended[]): void {
  for (const task of rows) {
    const beside = rows.filter(
      (other) =>
        other !== task &&
        other.group === task.group &&
        other.start <= task.start &&
        other.stop > task.start &&
        // Of two tasks with the same start, the one with the smaller id counts as the first.
        (other.start < task.start || other.id < task.id),
    );
    assert.ok(
      beside.length <= Math.max(0, task.max),
      `${JSON.stringify(task)} started beside ${JSON.stringify(beside)}`,
    );
  }
}

/** Asserts that tasks of a group with max 0 start in the order of their ids. */
function assertInOrder(rows: readonly Ended[]): void {
  const last = new Map<string, Ended>();
  for (const task of rows.filter(({ max }) => max === 0)) {
    const before = last.get(task.group);
    last.set(task.group, task);
    assert.ok(before === undefined || before.id < task.id, JSON.stringify([before, task]));
  }
}

/** Resolves when at least `min` of these tasks are DONE. */
async function done(ids: readonly string[], min: number): Promise<void> {
  await until(
    client,
    `SELECT FROM task WHERE id = ANY ('{${ids.join(",")}}') AND state = 'DONE'`,
    (rows) => rows.length >= min,
  );
}

/** Asserts that no task had two overlapping runs in different backends. */
async function assertNoneTwice(): Promise<void> {
  const { rows } = await client.query(
    `SELECT a.task FROM run AS a JOIN run AS b ON a.task = b.task AND a.pid <> b.pid
     WHERE a.start < b.start AND (a.stop IS NULL OR a.stop > b.start)`,
  );
  assert.deepEqual(rows, [], "a task ran in two sessions at once");
}

const config = { url: database.url, "pg_task.sleep": 50, "pg_conf.max": 6 };

test("§4 tasks of random groups, max and durations keep the limits and start in order", async () => {
  const running = await startProcess({ config });
  await running.line("ready");
  for (const seed of [1, 2, 3]) {
    const rows = await ended(await insertRandom(seed));
    assertWithinLimits(rows);
    assertInOrder(rows);
  }
  assert.equal((await running.end()).code, 0);
});

test("§4 and §8 groups keep their limits and no task runs twice at once when the process is killed", async () => {
  for (const seed of [4, 5]) {
    const killed = await startProcess({ config });
    await killed.line("ready");
    const ids = await insertRandom(seed);
    await done(ids, count / 3);
    await killed.end("SIGKILL");
    const next = await startProcess({ config });
    await next.line("ready");
    assertWithinLimits(await ended(ids, "run"));
    await assertNoneTwice();
    assert.equal((await next.end()).code, 0);
  }
});

/** Terminates the connections that hold the locks of the leader and of the manager, but no sessions. */
async function depose(): Promise<void> {
  await client.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name ~ '^pg_(conf|work)' AND pid IN
       (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)`,
  );
}

/** Resolves when every task that can start has started. To find out, runs a task that comes after all others. */
async function allStarted(): Promise<void> {
  const { id, state } = await tasks.run("SELECT 1", { group: "last", max: 0 });
  assert.equal(state, "DONE", id);
}

test("§4 and §8 groups keep their limits and no task runs twice at once when processes hand over", async () => {
  // There are enough sessions for all tasks that the groups allow to run, and for the task of `allStarted`.
  const roomy = { config: { ...config, "pg_conf.max": 30 } };
  for (const seed of [6, 7]) {
    const leader = await startProcess(roomy);
    await leader.line("ready");
    const others = [await startProcess(roomy), await startProcess(roomy)] as const;
    await Promise.all(others.map((each) => each.line("standby")));
    const ids = await insertRandom(seed);
    await done(ids, count / 3);
    // An orderly handover: one process finishes its tasks while the next one already leads.
    const stopped = leader.end();
    await Promise.race(others.map((each) => each.line("ready")));
    assert.equal((await stopped).code, 0);
    const [next, last] = others[0].linesMatching("ready").length > 0 ? others : others.toReversed();
    assert.ok(next !== undefined && last !== undefined);
    // A forced handover: the old leader is suspended and does not notice that it lost its locks, while its sessions
    // continue.
    await client.query(`SELECT pg_advisory_lock(${gate})`);
    ids.push(...(await insertRandom(seed + 10)));
    await allStarted();
    next.child.kill("SIGSTOP");
    await depose();
    await last.line("ready");
    await allStarted();
    await client.query(`SELECT pg_advisory_unlock(${gate})`);
    next.child.kill("SIGCONT");
    await next.line("standby", 2);
    // Either of the two processes may lead after that.
    await depose();
    assertWithinLimits(await ended(ids, "run"));
    await assertNoneTwice();
    for (const each of others) assert.equal((await each.end()).code, 0);
  }
});
