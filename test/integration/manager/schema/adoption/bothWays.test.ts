import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { latestVersion, recordAdoption } from "../../../../../src/manager/schema/migrations.js";
import { createDatabase } from "../../../../support/database.js";
import {
  extensionTable,
  extensionTableOfRoles,
  olderExtensionTable,
} from "../../../../support/foreignTables.js";
import { test } from "../../../../support/limitedTest.js";
import { ensure } from "../../../../support/taskTables.js";
import {
  firstMigration,
  migrationText,
  render,
} from "../../../../../src/manager/schema/migrations.js";
import { taskTable } from "../../../../../src/manager/schema/taskTable.js";
import { projectPath } from "../../../../support/project.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();

/** Everything that pg-task makes, without its names' schema. */
async function everything(schema: string): Promise<unknown> {
  const { rows } = await client.query<{ part: string }>(
    `SELECT replace(part, $1, 'SCHEMA') AS part FROM (
       SELECT concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull, attgenerated,
         pg_get_expr(adbin, adrelid), col_description(attrelid, attnum)) AS part
       FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
       WHERE attrelid = ($1 || '.task')::regclass AND attnum > 0
       UNION ALL SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = ($1 || '.task')::regclass
       UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = ($1 || '.task')::regclass
       UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = ($1 || '.task')::regclass
       UNION ALL SELECT pg_get_functiondef(oid) || obj_description(oid) FROM pg_proc WHERE pronamespace = $1::regnamespace
     ) AS parts ORDER BY 1`,
    [schema],
  );
  return rows.map(({ part }) => part);
}

test("a table at the first migration is brought to the latest, as if it were new", async () => {
  const table = taskTable("upgraded", "task");
  await client.query(
    `CREATE SCHEMA upgraded; CREATE TYPE upgraded.state AS ENUM ('PLAN', 'TAKE', 'WORK', 'DONE', 'FAIL', 'GONE', 'STOP')`,
  );
  for (const statement of firstMigration) await client.query(render(statement, table));
  await recordAdoption(client, table, true);
  await ensure(target, { schema: "upgraded" });
  await ensure(target, { schema: "fresh" });
  assert.deepEqual(await everything("upgraded"), await everything("fresh"));
  const { rows } = await client.query(
    "SELECT obj_description('upgraded.task_ready()'::regprocedure) AS comment",
  );
  assert.deepEqual(rows, [{ comment: `pg-task migration ${latestVersion}` }]);
});

test("a table at each later migration is brought to the latest as well", async () => {
  for (let version = 2; version < latestVersion; version += 1) {
    const schema = `from_${version}`;
    const table = taskTable(schema, "task");
    await client.query(
      `CREATE SCHEMA ${schema}; CREATE TYPE ${schema}.state AS ENUM ('PLAN', 'TAKE', 'WORK', 'DONE', 'FAIL', 'GONE', 'STOP')`,
    );
    for (let each = 1; each <= version; each += 1)
      await client.query(render(migrationText(each), table));
    await client.query(
      `COMMENT ON FUNCTION ${schema}.task_ready() IS 'pg-task migration ${version}'`,
    );
    await ensure(target, { schema });
    assert.deepEqual(await everything(schema), await everything("fresh"), `from ${version}`);
  }
});

test("an adopted table is at the latest migration as well", async () => {
  await client.query(extensionTable("adopted"));
  await ensure(target, { schema: "adopted" });
  const { rows } = await client.query(
    "SELECT obj_description('adopted.task_ready()'::regprocedure) AS comment",
  );
  assert.deepEqual(rows, [{ comment: `pg-task migration ${latestVersion}` }]);
});

test("what docs/adoption.md says of rights and of triggers is enough", async () => {
  const docs = readFileSync(projectPath("docs/adoption.md"), "utf8");
  const role = `owner_${target.database}`;
  await client.query(`CREATE ROLE ${role} LOGIN; ${extensionTableOfRoles("handed_over")}`);
  const [rights = "", triggers = ""] = [...docs.matchAll(/```sql\n([\s\S]*?)```/g)].map(
    ([, sql = ""]) => sql.replaceAll("public", "handed_over").replaceAll("worker", role),
  );
  const given = { schema: "handed_over" };
  await assert.rejects(ensure({ ...target, user: role }, given));
  await client.query(rights);
  await assert.rejects(ensure({ ...target, user: role }, given), { code: "SCHEMA_INCOMPATIBLE" });
  await client.query(triggers);
  await ensure({ ...target, user: role }, given);
  await client.query(`DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`);
});

test("what docs/adoption.md says for the way back leaves what the extension knows", async () => {
  const docs = readFileSync(projectPath("docs/adoption.md"), "utf8");
  const back = /## Going back[\s\S]*?```sql\n([\s\S]*?)```/.exec(docs)?.[1] ?? "";
  assert.ok(back !== "");
  await client.query(extensionTable("public_like"));
  const before = await client.query(
    "SELECT attname FROM pg_attribute WHERE attrelid = 'public_like.task'::regclass AND attnum > 0 ORDER BY attnum",
  );
  await ensure(target, { schema: "public_like" });
  await client.query(back.replaceAll("public.", "public_like."));
  const after = await client.query(
    "SELECT attname FROM pg_attribute WHERE attrelid = 'public_like.task'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
  );
  assert.deepEqual(after.rows, before.rows);
  const left = await client.query(
    `SELECT relname AS name FROM pg_class
     WHERE relnamespace = 'public_like'::regnamespace AND relkind = 'r' AND relname <> 'task'
     UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public_like'::regnamespace`,
  );
  assert.deepEqual(left.rows, []);
  // And it can be adopted once more.
  await ensure(target, { schema: "public_like" });
});

test("a generated hash is known for pg-task's where the database has all identifiers quoted", async () => {
  await client.query(olderExtensionTable("generated")("quoted"));
  await client.query(`ALTER DATABASE ${target.database} SET quote_all_identifiers = on`);
  try {
    await ensure(target, { schema: "quoted" });
    const read = (): Promise<unknown> => everything("quoted");
    const first = await read();
    await ensure(target, { schema: "quoted" });
    assert.deepEqual(await read(), first);
  } finally {
    await client.query(`ALTER DATABASE ${target.database} RESET quote_all_identifiers`);
  }
});
