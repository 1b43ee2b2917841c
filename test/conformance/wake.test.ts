import { test } from "node:test";
import { valueOf, eventually } from "../support/tasks.js";
import { serve } from "../support/serve.js";

const { database, client, tasks } = await serve({ "pg_task.sleep": 20, "pg_task.idle": 1 });
const [first, second] = [await database.connect(), await database.connect()];

/**
 * Time limit of each test, in ms. It is shorter than the five minutes after which a manager in deep sleep checks the
 * table in any case.
 */
const timeout = 270_000;

/**
 * Resolves when the manager is in deep sleep, without sessions, and has been idle for so long that its last pruning is
 * over. (The cycle that prunes would find a new task, too.)
 */
async function deepAsleep(): Promise<void> {
  await eventually<{ quiet: boolean }>(
    client,
    `SELECT bool_and(application_name LIKE 'pg\\_work %' AND state = 'idle'
         AND clock_timestamp() - state_change > interval '1.5 seconds') AS quiet
     FROM pg_stat_activity
     WHERE datname = current_database() AND (application_name LIKE 'pg\\_work %' OR application_name LIKE 'pg\\_task %')`,
    ([row]) => row?.quiet === true,
  );
}

const later = { input: "SELECT 1", plan: "infinity" };
const insert = `INSERT INTO task (input) VALUES ('SELECT 1') RETURNING id`;

/**
 * Changes that a user may make while the manager is in deep sleep. Each waits for it, and resolves with the ids of the
 * tasks that must then run.
 */
const changes: readonly (readonly [what: string, change: () => Promise<string[]>])[] = [
  [
    "an insert",
    async () => {
      await deepAsleep();
      return await tasks.insert({ input: "SELECT 1" });
    },
  ],
  [
    "an insert in a transaction that is open while it sleeps",
    async () => {
      await first.query("BEGIN");
      const id = await valueOf<string>(first, insert);
      await deepAsleep();
      await first.query("COMMIT");
      return [id];
    },
  ],
  [
    "an insert after a savepoint, next to one that is rolled back",
    async () => {
      await second.query("BEGIN");
      await second.query(insert);
      await first.query(`BEGIN; SAVEPOINT a; ${insert}; ROLLBACK TO a`);
      const id = await valueOf<string>(first, insert);
      await second.query("ROLLBACK");
      await deepAsleep();
      await first.query("COMMIT");
      return [id];
    },
  ],
  [
    "a plan that is moved to now",
    async () => {
      const ids = await tasks.insert(later);
      await deepAsleep();
      await client.query("UPDATE task SET plan = now() WHERE id = $1", ids);
      return ids;
    },
  ],
  [
    "a state that is set to PLAN",
    async () => {
      const ids = await tasks.insert({ input: "SELECT 1", state: "STOP" });
      await deepAsleep();
      await client.query("UPDATE task SET state = 'PLAN' WHERE id = $1", ids);
      return ids;
    },
  ],
  [
    "several rows of one statement",
    async () => {
      await deepAsleep();
      const { rows } = await client.query<{ id: string }>(
        "INSERT INTO task (input) SELECT 'SELECT 1' FROM generate_series(1, 3) RETURNING id",
      );
      return rows.map(({ id }) => id);
    },
  ],
];

for (const [what, change] of changes) {
  void test(`§9 the wake-up alone ends deep sleep: ${what}`, { timeout }, async () => {
    await tasks.ended(...(await change()));
  });
}
