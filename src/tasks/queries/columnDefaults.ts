import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { columnValue, type TaskColumns } from "./readTask.js";

/**
 * Matches the defaults that can be evaluated without side effects: those that pg-task takes from a parameter, and
 * constants.
 */
const constantDefault = new RegExp(
  [
    String.raw`\(?COALESCE\(NULLIF\(current_setting\('pg_task\.\w+'::text, true\), ''::text\), '(?:[^']|'')*'::text\)(?:\)::[\w ".]+)?`,
    String.raw`\(?'(?:[^']|'')*'::[\w "().\[\]]+`,
    String.raw`\(?-?\d+(?:\.\d+)?\)?(?:::[\w "]+)?`,
    "true|false",
  ]
    .map((pattern) => `^(?:${pattern})$`)
    .join("|"),
);

/** Whether a default can be evaluated at any time, without side effects. */
export const isConstantDefault = (expression: string): boolean => constantDefault.test(expression);

/**
 * Returns what the columns of a new row contain if the INSERT does not set them. A column whose default is computed in
 * another way, such as an id or a time, is left out.
 */
export async function readColumnDefaults(client: Queryable, { qualified }: TaskTable): Promise<TaskColumns> {
  const { rows: columns } = await client.query<{ name: string; expression: string | null }>(
    `SELECT a.attname AS name, pg_catalog.pg_get_expr(d.adbin, d.adrelid) AS expression
     FROM pg_catalog.pg_attribute AS a
     LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
     WHERE a.attrelid = $1::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
       AND a.attidentity = ''
     ORDER BY a.attnum`,
    [qualified],
  );
  const known = columns.filter(({ expression }) => expression === null || isConstantDefault(expression));
  const list = known.map(({ name, expression }) => `${expression ?? "NULL"} AS ${identifier(name)}`);
  const { rows } = await client.query<{ name: string; type: string; value: string | null }>(
    `SELECT c.key AS name, json_typeof(c.value) AS type, c.value #>> '{}' AS value
     FROM (SELECT ${list.join(", ")}) AS o, json_each(row_to_json(o)) AS c`,
  );
  return new Map(rows.map(({ name, type, value }) => [name, columnValue(name, type, value)]));
}
