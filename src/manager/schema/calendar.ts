import { readFileSync } from "node:fs";
import type { Entry } from "../../shared/config/types.js";
import { PgTaskError } from "../../shared/errors.js";
import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import type { TaskTable } from "./taskTable.js";

/** The folder of the .sql files. They stay next to their TypeScript source because the compiler does not copy them. */
const folder = new URL("../../../../src/manager/schema/calendar/", import.meta.url);

const files = ["zone.sql", "cron.sql", "recurrence.sql", "schedule.sql"] as const;

/** The SQL that creates the functions, with the placeholder `:"schema"`. */
export const calendarText = files.map((file) => readFileSync(new URL(file, folder), "utf8")).join("\n");

/**
 * Must be increased with every change of the functions. An older pg-task does not replace the functions of a newer one.
 */
const calendarVersion = 1;

const ownComment = "pg-task calendar ";

const functionNames = [
  ...new Set(
    [...calendarText.matchAll(/^CREATE OR REPLACE FUNCTION :"schema"\.(\w+)\(/gm)].map(([, name = ""]) => name),
  ),
];

/**
 * Creates or replaces the functions that compute the times of schedules, unless they are up to date. All task tables of
 * a schema share them.
 *
 * @throws PgTaskError SCHEMA_MISSING if functions are missing and the entry says `"create": false`.
 * @throws PgTaskError SCHEMA_INCOMPATIBLE if another function has one of the names.
 */
export async function ensureCalendar(client: Client, { schema }: TaskTable, { create }: Entry): Promise<void> {
  const { rows } = await client.query<{ name: string; comment: string | null }>(
    `SELECT p.proname AS name, pg_catalog.obj_description(p.oid, 'pg_proc') AS comment
     FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
     WHERE n.nspname = $1 AND p.proname = ANY ($2::text[])`,
    [schema, functionNames],
  );
  const foreign = rows.find(({ comment }) => comment?.startsWith(ownComment) !== true);
  if (foreign !== undefined) {
    throw new PgTaskError(
      "SCHEMA_INCOMPATIBLE",
      `the function ${identifier(schema)}.${identifier(foreign.name)} exists and was not created by pg-task: rename it, or give another "schema"`,
    );
  }
  const found = new Set(rows.map(({ name }) => name));
  const missing = functionNames.filter((name) => !found.has(name));
  const versions = rows.map(({ comment }) => Number(comment?.slice(ownComment.length)));
  if (missing.length === 0 && Math.min(...versions) >= calendarVersion) return;
  if (!create && missing.length > 0) {
    throw new PgTaskError(
      "SCHEMA_MISSING",
      `schema ${identifier(schema)} lacks the functions of schedules (${missing.join(", ")}), and its entry says "create": false`,
    );
  }
  await createCalendar(client, schema);
}

/** Creates or replaces the functions in the caller's transaction. */
export async function createCalendar(client: Client, schema: string): Promise<void> {
  let quote = "$function$";
  while (schema.includes(quote)) quote = quote.replace(/\$$/, "_$");
  await client.query(
    calendarText.replaceAll("$function$", () => quote).replaceAll(':"schema"', () => identifier(schema)),
  );
  const { rows } = await client.query<{ signature: string }>(
    `SELECT p.oid::pg_catalog.regprocedure::text AS signature FROM pg_catalog.pg_proc AS p
     WHERE p.pronamespace = $1::pg_catalog.regnamespace AND p.proname = ANY ($2::text[])`,
    [identifier(schema), functionNames],
  );
  // Every role that inserts tasks calls the functions, and default privileges may have revoked EXECUTE from PUBLIC.
  const statements = rows.map(
    ({ signature }) =>
      `COMMENT ON FUNCTION ${signature} IS '${ownComment}${calendarVersion}'; GRANT EXECUTE ON FUNCTION ${signature} TO PUBLIC`,
  );
  await client.query(statements.join("; "));
}
