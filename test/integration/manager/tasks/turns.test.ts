import { test } from "../../../support/limitedTest.js";
import { serve } from "../../../support/serve.js";
import { assertTurns, insertTurnTasks } from "../../../support/turnTasks.js";

const { client, database, pgTask } = await serve({ "pg_task.delete": false });
const seed = Number(process.env["SEED"] ?? Math.floor(Math.random() * 1e6));
const configuration = { url: database.url, "pg_task.sleep": 50, "pg_task.delete": false };

test(`nothing runs beside a chain that runs alone, and everything ends (SEED=${seed})`, async () => {
  await insertTurnTasks(client, seed, 120);
  await assertTurns(client);
});

test(`nor while pg-task is started anew several times (SEED=${seed})`, async () => {
  const inserted = insertTurnTasks(client, seed + 1, 80);
  for (let each = 0; each < 3; each += 1) {
    await pgTask.stop();
    await pgTask.start(configuration);
  }
  await inserted;
  await assertTurns(client);
});
