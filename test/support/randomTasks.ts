import assert from "node:assert/strict";
import type { Client } from "../../src/shared/postgres/client.js";
import { until, Tasks } from "./tasks.js";

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
export const gate = 815;
export const count = 80;

/** Returns a seeded generator of pseudo-random integers. Each call returns one from 0 to `below` (exclusive). */
export function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Tasks with random groups, limits and durations, which record their runs. */
export class RandomTasks {
  readonly tasks: Tasks;
  readonly #client: Client;

  private constructor(client: Client, tasks: Tasks) {
    this.#client = client;
    this.tasks = tasks;
  }

  static async create(client: Client): Promise<RandomTasks> {
    const tasks = await Tasks.create(client);
    // A run that is rolled back leaves no row in this table. The function `alone` therefore makes a run fail if another
    // run of the same task is active.
    await client.query(`
      CREATE TABLE run (task bigint, pid integer, start timestamptz, stop timestamptz);
      CREATE FUNCTION alone(task bigint) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        IF NOT pg_try_advisory_xact_lock(task) THEN RAISE 'task % runs in two sessions at once', task; END IF;
      END $$`);
    return new RandomTasks(client, tasks);
  }

  /** Inserts tasks with random group, max and duration. All become due at the same time, and each records its runs. */
  async insert(seed: number): Promise<string[]> {
    const random = numbers(seed);
    await this.#client.query("BEGIN");
    const ids = await this.tasks.insert(
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
    await this.#client.query("COMMIT");
    return ids;
  }

  /**
   * Waits until the tasks have ended. Returns the start and stop of each: from its row, or as recorded by the run itself.
   * What the run recorded is correct even if the manager found the run only after its start.
   */
  async ended(ids: readonly string[], source: "row" | "run" = "row"): Promise<Ended[]> {
    await this.tasks.ended(...ids);
    const of = source === "row" ? "task" : "run";
    const { rows } = await this.#client.query<Ended>(
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

  /** Resolves when at least `min` of these tasks are DONE. */
  async done(ids: readonly string[], min: number): Promise<void> {
    await until(
      this.#client,
      `SELECT FROM task WHERE id = ANY ('{${ids.join(",")}}') AND state = 'DONE'`,
      (rows) => rows.length >= min,
    );
  }

  /** Asserts that no task had two overlapping runs in different backends. */
  async assertNoneTwice(): Promise<void> {
    const { rows } = await this.#client.query(
      `SELECT a.task FROM run AS a JOIN run AS b ON a.task = b.task AND a.pid <> b.pid
       WHERE a.start < b.start AND (a.stop IS NULL OR a.stop > b.start)`,
    );
    assert.deepEqual(rows, [], "a task ran in two sessions at once");
  }
}

/** Asserts that, when each task started, no more other tasks of its group were running than its max allows. */
export function assertWithinLimits(rows: readonly Ended[]): void {
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
export function assertInOrder(rows: readonly Ended[]): void {
  const last = new Map<string, Ended>();
  for (const task of rows.filter(({ max }) => max === 0)) {
    const before = last.get(task.group);
    last.set(task.group, task);
    assert.ok(before === undefined || before.id < task.id, JSON.stringify([before, task]));
  }
}
