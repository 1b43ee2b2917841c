import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { columnList } from "../../../../../src/shared/taskColumns.js";
import { createDatabase } from "../../../../support/database.js";
import {
  extensionTable,
  extensionTableWithUserColumn,
  olderExtensionTable,
} from "../../../../support/foreignTables.js";
import { test } from "../../../../support/limitedTest.js";
import { ensureTaskTable } from "../../../../support/taskTables.js";
import { projectPath } from "../../../../support/project.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();

/** Describes every object that pg-task created in the schema, with unqualified names. */
async function everything(schema: string): Promise<unknown> {
  const { rows } = await client.query<{ part: string }>(
    `SELECT regexp_replace(replace(part, $1, 'SCHEMA'), '[0-9a-f]{16}$', 'DIGEST') AS part FROM (
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

test("a table of an unreleased version is adopted with its rows and proofs", async () => {
  await ensureTaskTable(target, { schema: "unreleased" });
  await client.query(`
    COMMENT ON FUNCTION unreleased.task_ready() IS 'pg-task migration 13';
    INSERT INTO unreleased.task (input, plan, state, take, start, pid, owner) VALUES
      ('due', '-infinity', 'PLAN', NULL, NULL, NULL, NULL),
      ('planned', 'infinity', 'PLAN', NULL, NULL, NULL, NULL),
      ('ran when its manager died', now(), 'WORK', now(), now(), 1, '1 1'),
      ('done', now(), 'DONE', now(), now(), 1, NULL);
    INSERT INTO unreleased.task_ledger_1 VALUES (3, 1, true, now(), now())`);
  const rows = (): Promise<unknown> =>
    client
      .query("SELECT t, l FROM unreleased.task AS t LEFT JOIN unreleased.task_ledger_1 AS l USING (id)")
      .then((result) => result.rows);
  const before = await rows();
  await ensureTaskTable(target, { schema: "unreleased" });
  assert.deepEqual(await rows(), before);
  await ensureTaskTable(target, { schema: "fresh" });
  assert.deepEqual(await everything("unreleased"), await everything("fresh"));
});

test("the rights and trigger statements in docs/adoption.md are sufficient", async () => {
  const docs = readFileSync(projectPath("docs/adoption.md"), "utf8");
  const role = `owner_${target.database}`;
  await client.query(`CREATE ROLE ${role} LOGIN; ${extensionTableWithUserColumn("handed_over")}`);
  const [rights = "", triggers = ""] = [...docs.matchAll(/```sql\n([\s\S]*?)```/g)].map(([, sql = ""]) =>
    sql.replaceAll("public", "handed_over").replaceAll("worker", role),
  );
  const given = { schema: "handed_over" };
  await assert.rejects(ensureTaskTable({ ...target, user: role }, given));
  await client.query(rights);
  await assert.rejects(ensureTaskTable({ ...target, user: role }, given), {
    code: "SCHEMA_INCOMPATIBLE",
  });
  await client.query(triggers);
  await ensureTaskTable({ ...target, user: role }, given);
  await client.query(`DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`);
});

test("docs/adoption.md names the columns that a table of the extension may have only after they were renamed", () => {
  const section = /### Columns of your own[\s\S]*?\)/.exec(readFileSync(projectPath("docs/adoption.md"), "utf8"))?.[0];
  const named = [...((section ?? "").split("(")[1] ?? "").matchAll(/`(\w+)`/g)].map(([, name = ""]) => name);
  assert.deepEqual(
    named,
    columnList.filter(({ since }) => since > 1).map(({ name }) => name),
  );
});

test("the statements under Going back in docs/adoption.md restore the extension's layout", async () => {
  const docs = readFileSync(projectPath("docs/adoption.md"), "utf8");
  const back = /## Going back[\s\S]*?```sql\n([\s\S]*?)```/.exec(docs)?.[1] ?? "";
  assert.ok(back !== "");
  await client.query(extensionTable("public_like"));
  const before = await client.query(
    "SELECT attname FROM pg_attribute WHERE attrelid = 'public_like.task'::regclass AND attnum > 0 ORDER BY attnum",
  );
  await ensureTaskTable(target, { schema: "public_like" });
  await client.query(back.replaceAll("public.", "public_like."));
  const after = await client.query(
    "SELECT attname FROM pg_attribute WHERE attrelid = 'public_like.task'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
  );
  assert.deepEqual(after.rows, before.rows);
  const left = await client.query(
    `SELECT relname AS name FROM pg_class
     WHERE relnamespace = 'public_like'::regnamespace AND relkind = 'r' AND relname <> 'task'
     UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public_like'::regnamespace
       AND NOT starts_with(obj_description(oid, 'pg_proc'), 'pg-task calendar')`,
  );
  assert.deepEqual(left.rows, []);
  await ensureTaskTable(target, { schema: "public_like" });
});

test("recognizes pg-task's generated hash in a database with quote_all_identifiers", async () => {
  await client.query(olderExtensionTable("generated")("quoted"));
  await client.query(`ALTER DATABASE ${target.database} SET quote_all_identifiers = on`);
  try {
    await ensureTaskTable(target, { schema: "quoted" });
    const read = (): Promise<unknown> => everything("quoted");
    const first = await read();
    await ensureTaskTable(target, { schema: "quoted" });
    assert.deepEqual(await read(), first);
  } finally {
    await client.query(`ALTER DATABASE ${target.database} RESET quote_all_identifiers`);
  }
});
