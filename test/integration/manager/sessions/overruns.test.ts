import assert from "node:assert/strict";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { Tasks } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
const config = { url: database.url, "pg_task.sleep": 200, "pg_task.delete": false };
const message = "task runs for longer than pg_task.slow";

const reported = (): unknown[] => pgTask.lines.flatMap(({ msg, id }) => (msg === message ? [id] : []));

test("a run that takes longer than pg_task.slow is logged once, while it runs", async () => {
  await pgTask.start({ ...config, "pg_task.slow": "100 ms" });
  const [slow = "", later = ""] = await tasks.insert(
    { input: "SELECT pg_sleep(60)", group: "b", key: "nightly" },
    { input: "SELECT pg_sleep(60)", group: "c" },
  );
  const { backend, level, ms, group, key } = await pgTask.logged(({ msg, id }) => msg === message && id === slow);
  await pgTask.logged(({ msg, id }) => msg === message && id === later);
  const row = await tasks.running(slow);
  assert.deepEqual([backend, level, group, key], [row.pid, "warn", "b", "nightly"]);
  assert.ok(typeof ms === "number" && ms >= 100);
  // A third run makes the monitor look again.
  const [third = ""] = await tasks.insert({ input: "SELECT pg_sleep(60)", group: "d" });
  await pgTask.logged(({ msg, id }) => msg === message && id === third);
  assert.equal(reported().length, 3);
  assert.deepEqual(new Set(reported()), new Set([slow, later, third]));
  await tasks.set(slow, "state = 'STOP'");
  await tasks.set(later, "state = 'STOP'");
  await tasks.set(third, "state = 'STOP'");
});

test("a changed limit also applies to what runs already", async () => {
  await pgTask.reload({ ...config, "pg_task.slow": "0" });
  await pgTask.logged(({ msg, slowMs }) => msg === "settings changed" && slowMs === 0);
  const [id = ""] = await tasks.insert({ input: "SELECT pg_sleep(60)" });
  await tasks.running(id);
  assert.equal(reported().includes(id), false);
  await pgTask.reload({ ...config, "pg_task.slow": "1 ms" });
  await pgTask.logged((line) => line.msg === message && line["id"] === id);
  await tasks.set(id, "state = 'STOP'");
});
