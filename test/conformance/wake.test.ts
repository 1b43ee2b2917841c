import { test } from "node:test";
import { createDatabase } from "../support/database.js";
import { PgTask } from "../support/pgTask.js";
import { Tasks } from "../support/tasks.js";
import { pause } from "../../src/shared/backoff.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.of(client);
const producers = await Promise.all(Array.from({ length: 4 }, () => database.connect()));
await pgTask.start({ url: database.url, "pg_task.sleep": 1, "pg_task.idle": 1 });

/**
 * Shorter than the five minutes after which deep sleep is looked out of in any case: a wake-up that
 * is lost would be made up for then.
 */
const timeout = 270_000;

/** One after the other, each when the one before has ended, so that it meets the manager falling asleep. */
async function insertOften(producer: (typeof producers)[number], count: number): Promise<void> {
  for (let round = 0; round < count; round += 1) {
    await producer.query("BEGIN");
    const { rows } = await producer.query<{ id: string }>(
      `INSERT INTO task (input, "group") VALUES ('SELECT 1', $1) RETURNING id`,
      [`${round % 3}`],
    );
    // In a long transaction the manager falls asleep between the insert and its commit.
    if (round % 4 === 0) await pause(round % 23);
    await producer.query("COMMIT");
    await tasks.ended(rows[0]?.id ?? "");
    if (round % 2 === 0) await pause(round % 7);
  }
}

void test(
  "§9 no insert, in a short transaction or a long one, is lost to a manager that falls asleep",
  { timeout },
  async () => {
    await Promise.all(producers.map((producer) => insertOften(producer, 12)));
    const [alone] = producers;
    if (alone !== undefined) await insertOften(alone, 30);
  },
);
