import assert from "node:assert/strict";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { Tasks } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
await pgTask.start({ url: database.url, "pg_task.sleep": 30 });

test("a slow trigger that delays all tasks is logged", async () => {
  await client.query(`
    CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(5.1); RETURN NEW; END $$;
    CREATE TRIGGER linger BEFORE UPDATE ON task FOR EACH ROW
      WHEN (NEW.data = 'slow' AND NEW.state = 'DONE') EXECUTE FUNCTION linger()`);
  const from = pgTask.lines.length;
  await tasks.run("SELECT 1", { data: "slow" });
  const line = await pgTask.logged(({ msg }) => msg === "slow cycle", from);
  assert.ok(Number(line["ms"]) > 5_000);
});
