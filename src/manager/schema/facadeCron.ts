import { readFileSync } from "node:fs";
import { PgTaskError } from "../../shared/errors.js";
import { packageFile } from "../../shared/packageFile.js";
import type { Client } from "../../shared/postgres/client.js";
import { render } from "./migrations.js";
import type { TaskTable } from "./taskTable.js";

/**
 * Creates or replaces the functions and views of pg_cron, so that SQL which calls them plans jobs in a task table.
 *
 * @throws PgTaskError SCHEMA_INCOMPATIBLE if pg_cron is installed in this database, or if something else is in its schema
 */
export async function createCronFacade(client: Client, table: TaskTable): Promise<void> {
  const { rows } = await client.query<{ installed: boolean; taken: boolean }>(
    `SELECT EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'pg_cron') AS installed,
       EXISTS (SELECT FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'cron'
         AND concat(pg_catalog.obj_description(n.oid, 'pg_namespace')) <> 'pg-task facade cron') AS taken`,
  );
  const [{ installed, taken } = { installed: false, taken: false }] = rows;
  if (installed)
    throw new PgTaskError("SCHEMA_INCOMPATIBLE", "pg_cron is installed in this database, and its functions stay");
  if (taken)
    throw new PgTaskError("SCHEMA_INCOMPATIBLE", "the schema cron exists, and pg-task did not create it: rename it");
  const text = readFileSync(packageFile("src/manager/schema/facadeCron.sql"), "utf8");
  await client.query(render(text, table));
}
