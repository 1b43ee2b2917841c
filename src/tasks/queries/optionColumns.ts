import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { columnsWith, isTaskColumn } from "../../shared/taskColumns.js";
import { isConstantDefault } from "./columnDefaults.js";

const optionNames: ReadonlySet<string> = new Set(columnsWith({ by: "producer" }));

/** A column to which a new task can give a value. */
export interface OptionColumn {
  readonly name: string;
  /** The type in SQL, for example `interval`. */
  readonly type: string;
  /** Whether it can be null. */
  readonly nullable: boolean;
  /** The value of a new task that gives none, as text. Null if it is null, or not known before the insert. */
  readonly default: string | null;
  /** Whether the column is the user's and not one of pg-task's. */
  readonly own: boolean;
}

/** Reads the columns to which a new task can give a value, in the table's order, with their defaults. */
export async function readOptionColumns(client: Queryable, table: TaskTable): Promise<OptionColumn[]> {
  const { rows } = await client.query<{ name: string; type: string; nullable: boolean; expression: string | null }>(
    `SELECT a.attname AS name, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type, NOT a.attnotnull AS nullable,
       pg_catalog.pg_get_expr(d.adbin, d.adrelid) AS expression
     FROM pg_catalog.pg_attribute AS a LEFT JOIN pg_catalog.pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
     WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.attidentity = ''
     ORDER BY a.attnum`,
    [table.qualified],
  );
  const listed = rows.filter(({ name }) => optionNames.has(name) || !isTaskColumn(name));
  const known = listed.filter(({ name }) => optionNames.has(name));
  const defaults = await readDefaults(client, known);
  return listed.map(({ name, type, nullable }) => ({
    name,
    type,
    nullable,
    default: defaults[name] ?? null,
    own: !isTaskColumn(name),
  }));
}

/** Evaluates those defaults that are constants or parameters. The others are known only when the row is inserted. */
async function readDefaults(
  client: Queryable,
  columns: readonly { readonly name: string; readonly expression: string | null }[],
): Promise<Readonly<Record<string, string | null>>> {
  const values = columns.flatMap(({ name, expression }) =>
    expression === null || !isConstantDefault(expression) ? [] : [`(${expression})::text AS ${identifier(name)}`],
  );
  if (values.length === 0) return {};
  const { rows } = await client.query<Record<string, string | null>>(`SELECT ${values.join(", ")}`);
  return rows[0] ?? {};
}
