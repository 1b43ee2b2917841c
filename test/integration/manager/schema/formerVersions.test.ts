import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { latestVersion, readRecord } from "../../../../src/manager/schema/migrations.js";
import { createDatabase } from "../../../support/database.js";
import { ensureTaskTable } from "../../../support/taskTables.js";
import { createFormerVersion } from "../../../support/versionOne.js";

const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();

async function describeSchema(schema: string): Promise<Record<string, readonly string[]>> {
  const lines = async (query: string): Promise<string[]> =>
    (await client.query<{ line: string }>(query, [schema])).rows.map(({ line }) => line.replaceAll(schema, "SCHEMA"));
  return {
    columns: await lines(
      `SELECT concat_ws(' ', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated,
         pg_get_expr(d.adbin, d.adrelid)) AS line
       FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
       LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
       WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'v') ORDER BY 1`,
    ),
    relations: await lines(
      `SELECT concat_ws(' ', c.relname, c.relkind, c.relreplident, c.reloptions) AS line FROM pg_class AS c
       WHERE c.relnamespace = $1::regnamespace ORDER BY 1`,
    ),
    constraints: await lines(
      `SELECT concat_ws(' ', c.conname, replace(pg_get_constraintdef(c.oid), ' NOT VALID', '')) AS line FROM pg_constraint AS c
       WHERE c.connamespace = $1::regnamespace AND c.contype <> 'n' ORDER BY 1`,
    ),
    indexes: await lines("SELECT indexdef AS line FROM pg_indexes WHERE schemaname = $1 ORDER BY 1"),
    triggers: await lines(
      `SELECT concat_ws(' ', pg_get_triggerdef(t.oid), obj_description(t.oid, 'pg_trigger')) AS line FROM pg_trigger AS t
       JOIN pg_class AS c ON c.oid = t.tgrelid WHERE c.relnamespace = $1::regnamespace AND NOT t.tgisinternal ORDER BY 1`,
    ),
    functions: await lines(
      `SELECT concat_ws(' ', p.oid::regprocedure, p.prosrc, p.proconfig) AS line FROM pg_proc AS p
       WHERE p.pronamespace = $1::regnamespace ORDER BY 1`,
    ),
  };
}

await ensureTaskTable(target, { schema: "fresh" });
const expected = await describeSchema("fresh");

describe("a table of an earlier version", () => {
  for (const version of [1, 2, 3] as const) {
    test(`is brought to the latest one, and its rows stay as they are: ${version}`, async () => {
      const schema = `former_${version}`;
      const table = await createFormerVersion(client, schema, version);
      await client.query(
        `INSERT INTO ${table.qualified} (input, plan, state) VALUES ('SELECT 1', 'infinity', 'PLAN'), ('SELECT 2', now(), 'DONE')`,
      );
      await client.query(`INSERT INTO ${table.pauses} ("group", reason) VALUES ('mail', 'moving')`);
      const rows = `SELECT ctid, xmin, id, input, plan, state, ready FROM ${table.qualified} ORDER BY id`;
      const { rows: before } = await client.query(rows);
      await ensureTaskTable(target, { schema });
      assert.deepEqual((await client.query(rows)).rows, before);
      assert.deepEqual((await client.query(`SELECT "group", reason FROM ${table.pauses}`)).rows, [
        { group: "mail", reason: "moving" },
      ]);
      const found = await describeSchema(schema);
      for (const [what, lines] of Object.entries(expected)) assert.deepEqual(found[what], lines, what);
      assert.equal((await readRecord(client, table)).version, latestVersion);
    });
  }
});
