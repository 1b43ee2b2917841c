import { queryOne } from "../queryOne.js";
import { defaultExpression } from "../../manager/schema/columnDefaults.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { columnValue, type TaskColumns } from "./readTask.js";
import { columnsWith, isTaskColumn } from "../../shared/taskColumns.js";

/** Defaults without side effects: those that pg-task takes from a parameter, and constants. */
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

interface Column {
  readonly name: string;
  readonly type: string;
  readonly nullable: boolean;
  readonly expression: string | null;
}

async function readColumns(client: Queryable, { qualified }: TaskTable): Promise<Column[]> {
  const { rows } = await client.query<Column>(
    `SELECT a.attname AS name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type, NOT a.attnotnull AS nullable,
       ${defaultExpression} AS expression
     FROM pg_catalog.pg_attribute AS a LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
     WHERE a.attrelid = $1::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.attidentity = ''
     ORDER BY a.attnum`,
    [qualified],
  );
  return rows;
}

/** Without the columns whose default is computed in another way, such as an id or a time. */
export async function readColumnDefaults(client: Queryable, table: TaskTable): Promise<TaskColumns> {
  const columns = await readColumns(client, table);
  const known = columns.filter(({ expression }) => expression === null || constantDefault.test(expression));
  const list = known.map(({ name, expression }) => `${expression ?? "NULL"} AS ${identifier(name)}`);
  const { rows } = await client.query<{ name: string; type: string; value: string | null }>(
    `SELECT c.key AS name, json_typeof(c.value) AS type, c.value #>> '{}' AS value
     FROM (SELECT ${list.join(", ")}) AS o, json_each(row_to_json(o)) AS c`,
  );
  return new Map(rows.map(({ name, type, value }) => [name, columnValue(name, type, value)]));
}

const optionNames: ReadonlySet<string> = new Set(columnsWith({ by: "producer" }));

export async function readOptionColumns(client: Queryable, table: TaskTable) {
  const listed = (await readColumns(client, table)).filter(({ name }) => optionNames.has(name) || !isTaskColumn(name));
  const known = listed.filter(({ name }) => optionNames.has(name));
  const defaults = await readDefaults(client, known);
  return listed.map(({ name, type, nullable }) => ({
    name,
    type,
    nullable,
    /** Null also if it is not known before the insert. */
    default: defaults[name] ?? null,
    own: !isTaskColumn(name),
  }));
}

async function readDefaults(
  client: Queryable,
  columns: readonly Column[],
): Promise<Readonly<Record<string, string | null>>> {
  const values = columns.flatMap(({ name, expression }) =>
    expression === null || !constantDefault.test(expression) ? [] : [`(${expression})::text AS ${identifier(name)}`],
  );
  if (values.length === 0) return {};
  return await queryOne<Record<string, string | null>>(client, `SELECT ${values.join(", ")}`);
}
