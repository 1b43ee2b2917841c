import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { maskRemote } from "../maskRemote.js";

/** A column's value: an id is text, and so is a number that JavaScript would not keep exactly. */
export type ColumnValue = string | number | boolean | null | object;

/** Every column of a task, a user's own included, in the table's order. */
export type WholeTask = ReadonlyMap<string, ColumnValue>;

/** Columns whose texts may be long. */
export const longTexts = ["input", "output", "error", "data"] as const;

/**
 * Null when there is no such task. The password in `remote` is masked.
 *
 * @param mostText of each long text this many characters; all of it unless given
 */
export async function readTask(
  client: Client,
  table: TaskTable,
  id: string,
  mostText?: number,
): Promise<WholeTask | null> {
  const { qualified } = table;
  const { rows } = await client.query<{ name: string; type: string; value: string | null }>(
    `SELECT c.key AS name, json_typeof(c.value) AS type, c.value #>> '{}' AS value
     FROM (SELECT row_to_json(o) AS task FROM (
         SELECT ${mostText === undefined ? "t.*" : await cutColumns(client, table, mostText)}
         FROM ${qualified} AS t WHERE t.id = $1::bigint LIMIT 1) AS o) AS one,
       json_each(one.task) WITH ORDINALITY AS c(key, value, place) ORDER BY c.place`,
    [id],
  );
  if (rows.length === 0) return null;
  return new Map(rows.map(({ name, type, value }) => [name, columnValue(name, type, value)]));
}

async function cutColumns(
  client: Client,
  { qualified }: TaskTable,
  mostText: number,
): Promise<string> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT attname AS name FROM pg_catalog.pg_attribute
     WHERE attrelid = ${literal(qualified)}::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum`,
  );
  return rows
    .map(({ name }) => {
      const column = identifier(name);
      const long = longTexts.some((each) => each === name);
      return long ? `substr(t.${column}::text, 1, ${mostText}) AS ${column}` : `t.${column}`;
    })
    .join(", ");
}

/** How many bytes each of the long texts has, null where there is none; null when there is no such task. */
export async function readTextSizes(
  client: Client,
  { qualified }: TaskTable,
  id: string,
): Promise<Readonly<Record<(typeof longTexts)[number], number | null>> | null> {
  const sizes = longTexts.map((name) => `octet_length(t.${name}::text)::float8 AS ${name}`);
  const { rows } = await client.query<Record<(typeof longTexts)[number], number | null>>(
    `SELECT ${sizes.join(", ")} FROM ${qualified} AS t WHERE t.id = $1::bigint`,
    [id],
  );
  return rows[0] ?? null;
}

function columnValue(name: string, type: string, value: string | null): ColumnValue {
  if (value === null) return null;
  if (name === "id" || name === "parent") return value;
  if (name === "remote") return maskRemote(value);
  if (type === "boolean") return value === "true";
  if (type === "number") return String(Number(value)) === value ? Number(value) : value;
  if (type === "object" || type === "array") return JSON.parse(value);
  return value;
}
