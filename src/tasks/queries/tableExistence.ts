import { latestVersion, readRecord } from "../../manager/schema/migrations.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { columnNames } from "../../shared/taskColumns.js";
import { queryOne } from "../queryOne.js";

/** "yes" if pg-task has created or adopted the table and it has all columns. */
export async function readTableExistence(client: Queryable, table: TaskTable): Promise<"yes" | "no" | "not adopted"> {
  const { qualified, pauses } = table;
  const { there, paused, whole } = await queryOne<{ there: boolean; paused: boolean; whole: boolean }>(
    client,
    `SELECT pg_catalog.to_regclass($1) IS NOT NULL AS there, pg_catalog.to_regclass($2) IS NOT NULL AS paused, EXISTS (
       SELECT FROM pg_catalog.pg_attribute
       WHERE attrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1) AND attname OPERATOR(pg_catalog.=) $3 AND NOT attisdropped) AS whole`,
    [qualified, pauses, columnNames.at(-1)],
  );
  if (!there) return "no";
  if (!paused) return "not adopted";
  // The column may have been dropped or renamed since.
  return whole || (await readRecord(client, table)).version >= latestVersion ? "yes" : "not adopted";
}
