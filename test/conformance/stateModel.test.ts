import assert from "node:assert/strict";
import * as fc from "fast-check";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { waitForRow } from "../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
await client.query("CREATE TABLE effect (task bigint, run integer)");

/** What was done to a task, which determines its allowed outcomes. */
interface Task {
  readonly id: string;
  readonly repeats: boolean;
  readonly vanishes: boolean;
  stopped: boolean;
  /** States other than STOP that the task was set to. */
  readonly set: Set<string>;
  deleted: boolean;
  replans: number;
}

interface Model {
  readonly tasks: Task[];
}

interface Real {
  readonly run: number;
  /** The commands executed so far, for the failure message. */
  readonly done: string[];
}

type Command = fc.AsyncCommand<Model, Real>;

const seed = Number(process.env["SEED"] ?? Math.floor(Math.random() * 2 ** 31));

const insert = fc
  .record({
    ms: fc.constantFrom(0, 0, 5, 60),
    max: fc.constantFrom(0, 0, 1, 3, -5),
    group: fc.nat(2),
    planMs: fc.constantFrom(0, 0, 40),
    repeats: fc.boolean(),
    drift: fc.boolean(),
    vanishes: fc.boolean(),
  })
  .map((task): Command => ({
    check: ({ tasks }) => tasks.length < 30,
    async run({ tasks }, { run, done }) {
      const { ms, max, group, planMs, repeats, drift, vanishes } = task;
      const effect = `INSERT INTO effect VALUES (current_setting('pg_task.id')::bigint, ${run})`;
      // A task with `delete` and without output has its row removed after the run.
      const input = vanishes
        ? `WITH e AS (${effect} RETURNING pg_sleep(${ms / 1000})) SELECT FROM e WHERE false`
        : `${effect}; SELECT pg_sleep(${ms / 1000})`;
      const { rows } = await client.query<{ id: string }>(
        `INSERT INTO task (input, max, "group", plan, repeat, drift, delete)
         VALUES ($1, $2, $3, now() + $4 * interval '1 ms', $5::interval, $6, true) RETURNING id`,
        [input, max, `run ${run} ${group}`, planMs, repeats ? "20 ms" : "0", drift],
      );
      const id = rows[0]?.id ?? "";
      tasks.push({
        id,
        repeats,
        vanishes,
        stopped: false,
        set: new Set(),
        deleted: false,
        replans: 0,
      });
      done.push(`insert ${id} ${JSON.stringify(task)}`);
    },
    toString: () => `insert ${JSON.stringify(task)}`,
  }));

/** A user's change to an inserted task. */
function act(name: string, sql: string, note: (task: Task) => unknown): fc.Arbitrary<Command> {
  return fc.nat(29).map((index): Command => ({
    check: ({ tasks }) => tasks.length > 0,
    async run({ tasks }, { done }) {
      const task = tasks[index % tasks.length];
      if (task === undefined) return;
      note(task);
      await client.query(sql, [task.id]);
      done.push(`${name} ${task.id}`);
    },
    toString: () => `${name} ${index}`,
  }));
}

function kill(role: string): fc.Arbitrary<Command> {
  return fc.constant({
    check: () => true,
    async run(_: Model, { done }: Real) {
      await client.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name ~ $1 LIMIT 1`,
        [`^${role} `],
      );
      done.push(`kill ${role}`);
    },
    toString: () => `kill ${role}`,
  });
}

const wait = fc.constantFrom(1, 10, 50).map((ms): Command => ({
  check: () => true,
  run: async () => void (await client.query("SELECT pg_sleep($1)", [ms / 1000])),
  toString: () => `wait ${ms} ms`,
}));

const commands = fc.commands(
  [
    insert,
    insert,
    insert,
    // Ended tasks are left out, because the command would only change the state in their rows.
    act(
      "stop",
      "UPDATE task SET state = 'STOP' WHERE id = $1 AND state IN ('PLAN', 'TAKE', 'WORK')",
      (task) => (task.stopped = true),
    ),
    ...["FAIL", "GONE", "DONE"].map((state) =>
      act(state, `UPDATE task SET state = '${state}' WHERE id = $1 AND state IN ('PLAN', 'TAKE', 'WORK')`, (task) =>
        task.set.add(state),
      ),
    ),
    act("plan", "UPDATE task SET state = 'PLAN', plan = now() WHERE id = $1", (task) => {
      task.replans += 1;
    }),
    act("delete", "DELETE FROM task WHERE id = $1", (task) => (task.deleted = true)),
    kill("pg_task"),
    kill("pg_work"),
    wait,
  ],
  { maxCommands: 40 },
);

interface Row {
  readonly id: string;
  readonly state: string;
  readonly parent: string | null;
  readonly owner: string | null;
  readonly error: string | null;
}

/** Waits until all tasks of this round have ended. Returns their rows and the number of their effects. */
async function waitForAllEnded(run: number): Promise<{ rows: Row[]; effects: Map<string, number> }> {
  await waitForRow(
    client,
    `WITH ending AS (UPDATE task SET repeat = '0' WHERE "group" LIKE $1 AND repeat > '0' RETURNING 1)
     SELECT WHERE NOT EXISTS (SELECT FROM ending) AND NOT EXISTS (SELECT FROM task
       WHERE "group" LIKE $1 AND (state IN ('PLAN', 'TAKE', 'WORK') OR owner IS NOT NULL))`,
    [`run ${run} %`],
  );
  const { rows } = await client.query<Row>(
    `SELECT id, state::text, parent, owner, error FROM task WHERE "group" LIKE $1`,
    [`run ${run} %`],
  );
  const { rows: effects } = await client.query<{ task: string; count: number }>(
    "SELECT task, count(*)::integer AS count FROM effect WHERE run = $1 GROUP BY task",
    [run],
  );
  return { rows, effects: new Map(effects.map(({ task, count }) => [task, count])) };
}

/** Asserts that the outcome is allowed, given what was done to the task. */
function assertAllowed(task: Task, row: Row | undefined, effects: number): void {
  const { stopped, set, deleted, replans, vanishes } = task;
  const maxEffects = 1 + replans;
  assert.ok(effects <= maxEffects, `${effects} effects, ${maxEffects} allowed`);
  if (row === undefined) {
    assert.ok(deleted || vanishes, "its row is gone");
    if (!deleted) assert.ok(effects >= 1, "gone without its effect");
    return;
  }
  if (row.state === "STOP") assert.ok(stopped, "nobody stopped it");
  else if (row.state !== "DONE") assert.ok(set.has(row.state), `${row.state} ${row.error}`);
  if (row.state !== "DONE" && replans === 0) assert.equal(effects, 0, `${row.state}, with its effect`);
  if (row.state === "DONE" && !set.has("DONE")) assert.ok(effects >= 1, "done without its effect");
}

test(`under random commands and terminated backends every task reaches an allowed outcome (SEED=${seed})`, async () => {
  const config = { url: database.url, "pg_task.sleep": 50, "pg_task.crash": 1000 };
  await pgTask.start(config);
  let run = 0;
  await fc.assert(
    fc.asyncProperty(commands, async (some) => {
      run += 1;
      const model: Model = { tasks: [] };
      const real: Real = { run, done: [] };
      await fc.asyncModelRun(() => ({ model, real }), some);
      const { rows, effects } = await waitForAllEnded(run);
      try {
        for (const task of model.tasks) {
          const row = rows.find(({ id }) => id === task.id);
          assertAllowed(task, row, effects.get(task.id) ?? 0);
        }
        const own = new Set(model.tasks.map(({ id }) => id));
        for (const { id, parent, state } of rows.filter((row) => !own.has(row.id))) {
          assert.ok(parent !== null, "a row that nobody inserted");
          assert.deepEqual([state, effects.get(id)], ["DONE", 1], `repeated ${id} of ${parent}`);
        }
        const untouched = model.tasks.filter(({ replans }) => replans === 0).map(({ id }) => id);
        for (const id of untouched) {
          const children = rows.filter(({ parent }) => parent === id).length;
          assert.ok(children <= 1, `${id} was repeated ${children} times`);
        }
      } catch (error) {
        throw new Error(`${String(error)}\n${real.done.join("\n")}`, { cause: error });
      }
    }),
    { seed, numRuns: 20, endOnFailure: true },
  );
  await pgTask.stop();
});
