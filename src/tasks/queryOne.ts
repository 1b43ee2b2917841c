import type { QueryResultRow } from "pg";
import type { Queryable } from "../shared/postgres/client.js";

/** Sends a statement that returns exactly one row, such as an aggregate, and returns the row. */
export async function queryOne<Row extends QueryResultRow>(
  client: Queryable,
  text: string,
  values: unknown[] = [],
): Promise<Row> {
  const { rows } = await client.query<Row>(text, values);
  const [row] = rows;
  if (row === undefined) throw new Error("expected one row");
  return row;
}

/** Whether this role may read a relation, which is qualified. Null if there is none of this name. */
export const mayRead = async (client: Queryable, relation: string): Promise<boolean | null> =>
  await queryValue(client, "SELECT pg_catalog.has_table_privilege(pg_catalog.to_regclass($1), 'SELECT') AS readable", [
    relation,
  ]);

/** Returns the only column of the row that `queryOne` returns. */
export async function queryValue<Value>(client: Queryable, text: string, values: unknown[] = []): Promise<Value> {
  const [value] = Object.values(await queryOne<Record<string, Value>>(client, text, values));
  if (value === undefined) throw new Error("expected one column");
  return value;
}
