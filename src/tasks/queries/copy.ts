import { findDifference, readHomes, readPlace } from "../../manager/schema/home.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Entry } from "../../shared/config/types.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { batched } from "../batched.js";

/**
 * Returns why the table is a copy, so that nothing starts, or null if it is at home here. Also null if it has no home table
 * yet, because it is of an earlier version, and if the role may not read it.
 */
export async function readCopy(
  client: Queryable,
  table: TaskTable,
  entry: Pick<Entry, "parameters">,
): Promise<string | null> {
  const reader = batched(client);
  const [homes, here] = await Promise.all([
    mayReadHome(reader, table).then(async (may) => (may ? await readHomes(reader, table) : [])),
    readPlace(reader, table),
  ]);
  return findDifference(homes, here, entry);
}

async function mayReadHome(client: Queryable, { qualifiedHome }: TaskTable): Promise<boolean> {
  const { rows } = await client.query<{ readable: boolean | null }>(
    "SELECT pg_catalog.has_table_privilege(pg_catalog.to_regclass($1), 'SELECT') AS readable",
    [qualifiedHome],
  );
  return rows[0]?.readable === true;
}
