import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { assertInOrder, assertWithinLimits, RandomTasks } from "../support/randomTasks.js";

// That groups keep their limits when processes end is tested in integration/process/groupLimits.

const pgTask = new PgTask();
const database = await createDatabase();
const random = await RandomTasks.create(await database.connect());

test("§4 tasks of random groups, max and durations keep the limits and start in order", async () => {
  await pgTask.start({ url: database.url, "pg_task.sleep": 50, "pg_conf.max": 6 });
  for (const seed of [1, 2, 3]) {
    const rows = await random.ended(await random.insert(seed));
    assertWithinLimits(rows);
    assertInOrder(rows);
  }
  await pgTask.stop();
});
