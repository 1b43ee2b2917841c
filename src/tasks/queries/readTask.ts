import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { maskConnectionString } from "../../shared/postgres/connectionString/maskConnectionString.js";

/** Ids and numbers that JavaScript cannot represent exactly are strings, and so is JSON with such numbers. */
export type ColumnValue = string | number | boolean | null | object;

/** All columns of a task, including the user's own, in the table's order. */
export type TaskColumns = ReadonlyMap<string, ColumnValue>;

export const longTextColumns = ["input", "output", "error", "data"] as const;

/**
 * With the password in `remote` masked. Null if there is no such task.
 *
 * @param maxTextLength to which the `longTextColumns` are truncated, in characters
 */
export async function readTask(
  client: Queryable,
  table: TaskTable,
  id: string,
  maxTextLength?: number,
): Promise<TaskColumns | null> {
  const { qualified } = table;
  const { rows } = await client.query<{ name: string; type: string; value: string | null }>(
    `SELECT c.key AS name, pg_catalog.json_typeof(c.value) AS type, c.value OPERATOR(pg_catalog.#>>) '{}' AS value
     FROM (SELECT pg_catalog.row_to_json(o) AS task FROM (
         SELECT ${maxTextLength === undefined ? "t.*" : await cutColumns(client, table, maxTextLength)}
         FROM ${qualified} AS t WHERE t.id OPERATOR(pg_catalog.=) $1::bigint LIMIT 1) AS o) AS one,
       pg_catalog.json_each(one.task) WITH ORDINALITY AS c(key, value, place) ORDER BY c.place`,
    [id],
  );
  if (rows.length === 0) return null;
  return new Map(
    rows.map(({ name, type, value }) => [name, name === "after" ? idsIn(value) : columnValue(name, type, value)]),
  );
}

async function cutColumns(client: Queryable, { qualified }: TaskTable, maxTextLength: number): Promise<string> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT attname AS name FROM pg_catalog.pg_attribute
     WHERE attrelid OPERATOR(pg_catalog.=) ${literal(qualified)}::pg_catalog.regclass AND attnum OPERATOR(pg_catalog.>) 0 AND NOT attisdropped ORDER BY attnum`,
  );
  return rows
    .map(({ name }) => {
      const column = identifier(name);
      const long = longTextColumns.some((each) => each === name);
      return long ? `pg_catalog.substr(t.${column}::pg_catalog.text, 1, ${maxTextLength}) AS ${column}` : `t.${column}`;
    })
    .join(", ");
}

/** In bytes. Null if there is no such task. */
export async function readTextSizes(
  client: Queryable,
  { qualified }: TaskTable,
  id: string,
): Promise<Readonly<Record<(typeof longTextColumns)[number], number | null>> | null> {
  const sizes = longTextColumns.map(
    (name) => `pg_catalog.octet_length(t.${name}::pg_catalog.text)::pg_catalog.float8 AS ${name}`,
  );
  const { rows } = await client.query<Record<(typeof longTextColumns)[number], number | null>>(
    `SELECT ${sizes.join(", ")} FROM ${qualified} AS t WHERE t.id OPERATOR(pg_catalog.=) $1::bigint`,
    [id],
  );
  return rows[0] ?? null;
}

const idsIn = (json: string | null): string[] | null => (json === null ? null : (json.match(/-?\d+/g) ?? []));

export function columnValue(name: string, type: string, value: string | null): ColumnValue {
  if (value === null) return null;
  if (name === "id" || name === "parent") return value;
  if (name === "remote") return maskConnectionString(value);
  if (type === "boolean") return value === "true";
  if (type === "number") return String(Number(value)) === value ? Number(value) : value;
  if (type === "object" || type === "array") return hasLongNumber(value) ? value : JSON.parse(value);
  return value;
}

/** Whether JSON contains a number of 16 digits or more outside of its strings. */
const hasLongNumber = (json: string): boolean => /\d[\d.]{15}/.test(json.replace(/"(?:[^"\\]|\\.)*"/g, '""'));
