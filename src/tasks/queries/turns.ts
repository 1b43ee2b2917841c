import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import type { OpenTurn } from "../../shared/openTurn.js";
import { queryValue } from "../queryOne.js";

/** Empty if this role may not know, or if the table is of an earlier version. */
export async function readOpenTurns(client: Queryable, { turns }: TaskTable): Promise<OpenTurn[]> {
  const mayRead = await queryValue<boolean | null>(
    client,
    "SELECT pg_catalog.has_table_privilege(pg_catalog.to_regclass($1), 'SELECT') AS readable",
    [turns],
  );
  if (mayRead !== true) return [];
  const { rows } = await client.query<OpenTurn>(
    `SELECT turn::pg_catalog.text AS task, "group", begun FROM ${turns} ORDER BY begun DESC, turn`,
  );
  return rows;
}
