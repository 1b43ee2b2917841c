import assert from "node:assert/strict";
import { until } from "../support/changes.js";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { startProcess } from "../support/process.js";
import { Tasks } from "../support/tasks.js";

const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.of(client);
await client.query(
  "CREATE TABLE run (task bigint, pid integer, start timestamptz, stop timestamptz)",
);

interface Ended {
  readonly id: number;
  readonly group: string;
  readonly max: number;
  readonly start: number;
  readonly stop: number;
}

const groups = 4;
const count = 80;

/** The next of a series of pseudo-random numbers below `below`, always the same for one seed. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Tasks of random groups, max and durations, all due at one moment; each notes its runs. */
async function plant(seed: number): Promise<string[]> {
  const random = numbers(seed);
  await client.query("BEGIN");
  const ids = await tasks.insert(
    ...Array.from({ length: count }, () => ({
      input: `INSERT INTO run SELECT current_setting('pg_task.id')::bigint, pg_backend_pid(), clock_timestamp();
        SELECT pg_sleep(${random(25) / 1000});
        UPDATE run SET stop = clock_timestamp() WHERE task = current_setting('pg_task.id')::bigint AND pid = pg_backend_pid()`,
      group: `seed ${seed} group ${random(groups)}`,
      max: random(7) - 2,
      count: random(3),
    })),
  );
  await client.query("COMMIT");
  return ids;
}

async function ended(ids: readonly string[]): Promise<Ended[]> {
  await tasks.ended(...ids);
  const { rows } = await client.query<Ended>(
    `SELECT id::integer, "group", max, (extract(epoch FROM start) * 1e6)::float8 AS start,
       (extract(epoch FROM stop) * 1e6)::float8 AS stop
     FROM task WHERE id = ANY ($1::bigint[]) AND state = 'DONE' ORDER BY start`,
    [ids],
  );
  assert.equal(rows.length, ids.length);
  return rows;
}

/** Each task's own max at its start: so many others of its group may run then, none beside a pause. */
function assertNeverTooMany(rows: readonly Ended[]): void {
  for (const task of rows) {
    const beside = rows.filter(
      (other) =>
        other !== task &&
        other.group === task.group &&
        other.start <= task.start &&
        other.stop > task.start &&
        // Of two that start at once the one with the smaller id was first.
        (other.start < task.start || other.id < task.id),
    );
    assert.ok(
      beside.length <= Math.max(0, task.max),
      `${JSON.stringify(task)} started beside ${JSON.stringify(beside)}`,
    );
  }
}

/** Of a group, those with the same max ≥ 0 start in the order of their ids. */
function assertInOrder(rows: readonly Ended[]): void {
  const last = new Map<string, Ended>();
  for (const task of rows.filter(({ max }) => max === 0)) {
    const before = last.get(task.group);
    last.set(task.group, task);
    assert.ok(before === undefined || before.id < task.id, JSON.stringify([before, task]));
  }
}

const config = { url: database.url, "pg_task.sleep": 50, "pg_conf.max": 6 };

test("§4 whatever groups, max and durations: never more at once than allowed, and in order", async () => {
  const running = await startProcess({ config });
  await running.line("ready");
  for (const seed of [1, 2, 3]) {
    const rows = await ended(await plant(seed));
    assertNeverTooMany(rows);
    assertInOrder(rows);
  }
  assert.equal((await running.end()).code, 0);
});

test("§4 and §8 never more at once than allowed, and no task twice at once, across a kill in the middle", async () => {
  for (const seed of [4, 5]) {
    const killed = await startProcess({ config });
    await killed.line("ready");
    const ids = await plant(seed);
    await until(
      client,
      `SELECT FROM task WHERE id = ANY ('{${ids.join(",")}}') AND state = 'DONE'`,
      (rows) => rows.length >= count / 3,
    );
    await killed.end("SIGKILL");
    const next = await startProcess({ config });
    await next.line("ready");
    assertNeverTooMany(await ended(ids));
    const { rows } = await client.query(
      `SELECT a.task FROM run AS a JOIN run AS b ON a.task = b.task AND a.pid <> b.pid
       WHERE a.start < b.start AND (a.stop IS NULL OR a.stop > b.start)`,
    );
    assert.deepEqual(rows, [], "a task ran in two sessions at once");
    assert.equal((await next.end()).code, 0);
  }
});
