import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after } from "node:test";
import { createDatabase, onServer, serverMajor } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { PgTask } from "../support/pgTask.js";
import { waitForRow } from "../support/tasks.js";
import { withConnectionTo } from "../support/connectTo.js";

const pgTask = new PgTask();
const owner = `owner_${randomBytes(4).toString("hex")}`;
const database = await createDatabase("empty");
after(() => onServer((server) => server.query(`DROP ROLE ${owner}`)));
const client = await database.connect();
const { database: data, user } = database.target;
await client.query(`CREATE ROLE ${owner} LOGIN`);
await client.query(`ALTER DATABASE ${data} OWNER TO ${owner}`);
await pgTask.start({
  url: database.url,
  "pg_task.timeout": "1 min",
  "pg_task.json": [
    { data, user, table: "plain" },
    { data, user, table: "special", "pg_task.timeout": "2 min", "pg_task.max": 5 },
  ],
});

/** Inserts a row into a table, and returns the defaults that it got. */
async function inserted(table: string): Promise<unknown> {
  const { rows } = await client.query(`INSERT INTO ${table} (input) VALUES ('SELECT 1') RETURNING timeout::text, max`);
  return rows[0];
}

test("§2 an entry's pg_task. parameter is the default of its own table only", async () => {
  assert.deepEqual(await inserted("plain"), { timeout: "00:01:00", max: 0 });
  assert.deepEqual(await inserted("special"), { timeout: "00:02:00", max: 5 });
});

test("§2 ALTER DATABASE and ALTER ROLE of the settings need a superuser or, from PostgreSQL 15 on, a grant", async () => {
  const asOwner = { ...database.target, user: owner };
  const alter = (setting: string): Promise<unknown> =>
    withConnectionTo(asOwner, (session) => session.query(`ALTER DATABASE ${data} SET ${setting}`));
  await assert.rejects(alter("pg_task.sleep = 500"), { code: "42501" });
  if ((await serverMajor()) < 15) return;
  await client.query(`GRANT SET ON PARAMETER pg_task.sleep TO ${owner}`);
  await alter("pg_task.sleep = 500");
  await assert.rejects(alter("pg_task.max = 5"), { code: "42501" });
  await client.query(`ALTER DATABASE ${data} RESET ALL; REVOKE SET ON PARAMETER pg_task.sleep FROM ${owner}`);
});

test("§2 any role may SET the settings in its own session", async () => {
  const { rows } = await withConnectionTo({ ...database.target, user: owner }, async (session) => {
    await session.query(`SET pg_task.max = 3; SET pg_task."null" = 'nil'`);
    return await session.query(
      `SELECT current_setting('pg_task.max') AS max, current_setting('pg_task.null') AS "null"`,
    );
  });
  assert.deepEqual(rows, [{ max: "3", null: "nil" }]);
});

test("§3 tasks run even if a user has dropped the indexes", async () => {
  await client.query("DROP INDEX plain_due_idx, plain_plan_idx, plain_keep_idx");
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO plain (input, plan, keep) VALUES ('SELECT 1', now(), '0'),
       ('SELECT 2', now() + interval '1 sec', '0'), ('SELECT 3', now(), '1 ms') RETURNING id`,
  );
  await waitForRow(client, "SELECT FROM plain WHERE id = ANY ($1::bigint[]) AND state = 'DONE' HAVING count(*) = 2", [
    rows.slice(0, 2).map(({ id }) => id),
  ]);
  await waitForRow(client, "SELECT FROM plain WHERE id = $1 HAVING count(*) = 0", [rows[2]?.id]);
});

test("§3 a partitioned table cannot have the generated hash in its partition key", async () => {
  await assert.rejects(
    client.query(
      `CREATE TABLE wrong (id bigint, "group" text, hash integer GENERATED ALWAYS AS (length("group")) STORED)
       PARTITION BY HASH (hash)`,
    ),
    { code: "42P17" },
  );
});
