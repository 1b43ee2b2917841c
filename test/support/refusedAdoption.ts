import assert from "node:assert/strict";
import { PgTaskError } from "../../src/shared/errors.js";
import type { Client } from "../../src/shared/postgres/client.js";
import type { ConnectionTarget } from "../../src/shared/postgres/target/target.js";
import { ensureTaskTable } from "./taskTables.js";

/** Returns the schema's catalog entries, and the rows of its table `task`. */
export async function schemaContents(client: Client, schema: string): Promise<unknown> {
  const { rows } = await client.query(
    `SELECT (SELECT json_agg(json_build_array(relname, relkind, xmin::text) ORDER BY oid) FROM pg_class WHERE relnamespace = n.oid) AS relations,
       (SELECT json_agg(json_build_array(attname, atttypid, a.xmin::text) ORDER BY attrelid, attnum) FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = attrelid WHERE relnamespace = n.oid) AS columns,
       (SELECT json_agg(json_build_array(conname, xmin::text) ORDER BY oid) FROM pg_constraint WHERE connamespace = n.oid) AS constraints,
       (SELECT json_agg(proname ORDER BY oid) FROM pg_proc WHERE pronamespace = n.oid) AS functions,
       (SELECT json_agg(json_build_array(typname, xmin::text) ORDER BY oid) FROM pg_type WHERE typnamespace = n.oid) AS types,
       (SELECT json_agg(json_build_array(t, t.xmin::text, t.ctid)) FROM ${schema}.task AS t) AS rows
     FROM pg_namespace AS n WHERE nspname = $1`,
    [schema],
  );
  return rows[0];
}

/**
 * Returns the error with which adoption is refused. Asserts that nothing is changed, and that the statements in the error
 * make the table adoptable.
 */
export async function refusedAdoption(client: Client, target: ConnectionTarget, schema: string): Promise<string> {
  const before = await schemaContents(client, schema);
  const error: unknown = await ensureTaskTable(target, { schema }).catch((reason: unknown) => reason);
  assert.ok(error instanceof PgTaskError && error.code === "SCHEMA_INCOMPATIBLE", String(error));
  assert.deepEqual(await schemaContents(client, schema), before);
  const [what = "", ...statements] = error.message.split("\n");
  assert.ok(statements.length > 0);
  for (const statement of statements) await client.query(statement);
  await ensureTaskTable(target, { schema });
  return what;
}
