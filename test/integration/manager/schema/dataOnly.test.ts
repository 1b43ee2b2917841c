import assert from "node:assert/strict";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { waitForRow, waitForState } from "../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();

/** Loads the rows of a table again, as `pg_dump --data-only` and `psql` do, with or without those of its dependencies. */
async function reload(withDependencies: boolean): Promise<void> {
  const { rows } = await client.query<{ columns: string }>(
    `SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) AS columns FROM pg_attribute
     WHERE attrelid = 'task'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`,
  );
  const columns = rows[0]?.columns;
  await client.query(`
    CREATE TEMP TABLE rows AS SELECT ${columns} FROM task; CREATE TEMP TABLE dependencies AS SELECT * FROM task_after;
    TRUNCATE task, task_after;
    INSERT INTO task (${columns}) SELECT ${columns} FROM rows ORDER BY id DESC;
    INSERT INTO task_after SELECT * FROM dependencies WHERE ${withDependencies};
    DROP TABLE rows, dependencies`);
}

const plans = `SELECT id::int, plan, due FROM task ORDER BY id`;

test("rows that are loaded from a dump keep their plans, and those that wait for others are released", async () => {
  await client.query(`
    INSERT INTO task (id, input, plan, after, "group") VALUES (1, 'SELECT 1', 'infinity', NULL, 'a'), (2, 'SELECT 2', now(), '{1}', 'b');
    INSERT INTO task (id, input, rule) VALUES (3, 'SELECT 3', '0 4 1 1 *'), (4, 'SELECT 4', '0 4 1 1 *');
    INSERT INTO task (id, input, rule, after) VALUES (5, 'SELECT 5', '0 4 1 1 *', '{1}');
    UPDATE task SET plan = now() + interval '1 hour' WHERE id = 3;
    UPDATE task SET plan = 'infinity' WHERE id = 4`);
  await pgTask.start({ url: database.url });
  await waitForRow(client, "SELECT FROM task WHERE wait = 0 HAVING count(*) = 2");
  await pgTask.stop();
  const before = await client.query(plans);
  for (const withDependencies of [true, false]) {
    await reload(withDependencies);
    assert.deepEqual((await client.query(plans)).rows, before.rows);
  }
  await pgTask.start({ url: database.url });
  await client.query("UPDATE task SET plan = now() WHERE id = 1");
  await waitForState(client, "2", "DONE");
  await waitForRow(client, "SELECT FROM task WHERE id = 5 AND isfinite(plan) AND wait IS NULL");
});
