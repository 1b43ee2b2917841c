import assert from "node:assert/strict";
import { after } from "node:test";
import { cli } from "../../../../support/cli.js";
import { createDatabase, onServer } from "../../../../support/database.js";
import { doctor } from "../../../../support/doctor.js";
import { extensionTable } from "../../../../support/foreignTables.js";
import { test } from "../../../../support/limitedTest.js";
import { PgTask } from "../../../../support/pgTask.js";
import { ensureTaskTable } from "../../../../support/taskTables.js";

const pgTask = new PgTask();
/** In this database, new objects are granted to others, as on Supabase. */
const database = await createDatabase("empty");
const client = await database.connect();
const { target } = database;
const [anon, producer] = [`anon_${target.database}`, `producer_${target.database}`];
// By then, the database has been dropped, with the grants of the roles.
after(() => onServer((server) => server.query(`DROP ROLE ${anon}, ${producer}`)));
await client.query(`
  CREATE ROLE ${anon}; CREATE ROLE ${producer};
  ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO ${anon}, PUBLIC;
  ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO ${anon}, PUBLIC;
  ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO ${anon}`);

async function granted(schema: string): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT DISTINCT c.relname AS name FROM pg_class AS c, aclexplode(c.relacl) AS g
     WHERE c.relnamespace = to_regnamespace($1) AND g.grantee <> c.relowner ORDER BY 1`,
    [schema],
  );
  return rows.map(({ name }) => name);
}

test("a new table, its sequence, its views and the tables beside it are granted to nobody", async () => {
  await ensureTaskTable(target, { schema: "fresh" });
  assert.deepEqual(await granted("fresh"), []);
  await client.query(`GRANT USAGE ON SCHEMA fresh TO ${anon}; SET ROLE ${anon}`);
  await assert.rejects(client.query("INSERT INTO fresh.task (input) VALUES ('SELECT 1')"), { code: "42501" });
  await client.query("RESET ROLE");
});

test("what is granted on a table of pg-task stays, also when objects beside it are created again", async () => {
  await ensureTaskTable(target, { schema: "kept" });
  await client.query(`GRANT INSERT, SELECT ON kept.task, kept.task_stats TO ${producer}; DROP TABLE kept.task_pause`);
  await ensureTaskTable(target, { schema: "kept" });
  assert.deepEqual(await granted("kept"), ["task", "task_stats"]);
});

test("an adopted table keeps its grants, and the tables beside it are granted to nobody", async () => {
  await client.query(extensionTable("adopted"));
  const before = await granted("adopted");
  assert.ok(before.includes("task"));
  await ensureTaskTable(target, { schema: "adopted" });
  assert.deepEqual(await granted("adopted"), before);
});

test("the log, check and doctor name the roles that may write tasks", async () => {
  await ensureTaskTable(target);
  const env = { DATABASE_URL: database.url };
  const diagnose = async (): Promise<readonly (string | undefined)[]> => {
    const line = (await doctor(env)).lines.find(({ name }) => name === "writers");
    return [line?.level, line?.text];
  };
  assert.deepEqual(await diagnose(), ["ok", "no other role may add or change tasks"]);
  await client.query(`GRANT INSERT (input), UPDATE (plan) ON task TO ${producer}; GRANT SELECT ON task TO PUBLIC`);
  assert.deepEqual(await diagnose(), ["ok", `may write some columns of tasks: ${producer}`]);
  assert.doesNotMatch((await cli(["check"], { env })).stdout, /may write/);
  await client.query(`GRANT UPDATE (input) ON task TO PUBLIC; GRANT INSERT ON task TO ${anon}`);
  const text = `PUBLIC, ${anon} may write tasks, and so run SQL as the entry's user; some columns: ${producer}`;
  assert.deepEqual(await diagnose(), ["warn", text]);
  const revoke = `REVOKE INSERT, UPDATE ON "public"."task" FROM PUBLIC, ${anon}`;
  assert.ok((await cli(["check"], { env })).stdout.includes(`"public"."task": ${text}: ${revoke}`));
  await pgTask.start({ url: database.url });
  const { roles, remedy } = await pgTask.line("other roles may write tasks");
  assert.deepEqual([roles, remedy], [["PUBLIC", anon], revoke]);
  assert.deepEqual((await pgTask.line("other roles may write some columns of tasks"))["roles"], [producer]);
  await client.query(revoke);
  assert.deepEqual(await diagnose(), ["ok", `may write some columns of tasks: ${producer}`]);
});
