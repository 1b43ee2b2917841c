import type { Queryable } from "../../shared/postgres/client.js";
import type { TaskTable } from "./taskTable.js";

export async function canReadOwed(client: Queryable, { qualifiedOwed }: TaskTable): Promise<boolean> {
  const { rows } = await client.query<{ readable: boolean }>(
    "SELECT coalesce(pg_catalog.has_table_privilege(pg_catalog.to_regclass($1), 'SELECT'), false) AS readable",
    [qualifiedOwed],
  );
  return rows[0]?.readable === true;
}

/** What precedes the reason in the `error` of a task whose next run could not be planned. */
export const owedPrefix = "ERROR:  next run was not planned: ";

/** Matches that note. In a message with the same text, further lines begin with a tab. */
export const owedNotePattern = `(^|\n)${owedPrefix}.*$`;

/** 0 if this role may not know. */
export async function countOwed(client: Queryable, table: TaskTable): Promise<number> {
  if (!(await canReadOwed(client, table))) return 0;
  const { rows } = await client.query<{ count: number }>(
    `SELECT pg_catalog.count(*)::pg_catalog.float8 AS count FROM ${table.qualifiedOwed}`,
  );
  return rows[0]?.count ?? 0;
}
