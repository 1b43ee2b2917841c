import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { Tasks } from "../support/tasks.js";
import { createRole, withConnection } from "../support/taskTables.js";

const page = readFileSync(new URL("../../../docs/order.md", import.meta.url), "utf8");
const text = page.split("\n## Gap\n")[1]?.split("\n## ")[0] ?? "";
const blocks = [...text.matchAll(/^```sql\n(.*?)^```$/gms)].map(([, sql = ""]) => sql);

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
await client.query("CREATE FUNCTION call_service(integer) RETURNS text LANGUAGE sql AS 'SELECT ''called'''");
await pgTask.start({ url: database.url, "pg_task.sleep": 50 });

/** Returns the block of the section that contains this text, which no other block contains. */
function block(part: string): string {
  const found = blocks.filter((sql) => sql.includes(part));
  assert.equal(found.length, 1, part);
  return found[0] ?? "";
}

test("the section has as many blocks as are run", () => {
  assert.equal(blocks.length, 3);
});

test("the tasks of the first block start a gap apart, and the last block ends the wait", async () => {
  await client.query(block("INSERT INTO task"));
  const { rows } = await client.query<{ id: string }>("SELECT id FROM task ORDER BY id");
  const ids = rows.map(({ id }) => id);
  await tasks.ended(...ids.slice(0, 2));
  await client.query(block("UPDATE task"));
  const ended = await tasks.ended(...ids);
  assert.deepEqual(
    ended.map(({ state, output }) => [state, output]),
    ids.map(() => ["DONE", "called"]),
  );
  const { rows: gaps } = await client.query<{ near: boolean }>(
    "SELECT b.start - a.start < interval '0.6 s' AS near FROM task AS a, task AS b WHERE a.id = $1 AND b.id = $2",
    ids.slice(0, 2),
  );
  assert.deepEqual(gaps, [{ near: false }]);
});

test("the block about a role sets the role's default", async () => {
  const role = await createRole(client, "batch");
  await client.query(
    `GRANT USAGE ON SCHEMA public TO ${role}; GRANT INSERT, SELECT ON task TO ${role};
     GRANT USAGE ON SEQUENCE task_id_seq TO ${role}`,
  );
  await client.query(block("ALTER ROLE"));
  const { rows } = await withConnection({ ...database.target, user: role }, (producer) =>
    producer.query(`INSERT INTO task (input) VALUES ('SELECT 1') RETURNING gap::text AS gap`),
  );
  assert.deepEqual(rows, [{ gap: "00:00:01" }]);
});
