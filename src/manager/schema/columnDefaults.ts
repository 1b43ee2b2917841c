import type { FileParameters } from "../../shared/config/parameterTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { columnsWith, type ColumnsWith } from "../../shared/taskColumns.js";
import { applyPlanDefault } from "./planDefault.js";
import type { TaskTable } from "./taskTable.js";

type ParameterColumn = ColumnsWith<{ readonly default: "parameter" }>;

/** Columns of the first version that take their default from the parameter of the same name. */
export const parameterColumns: readonly ParameterColumn[] = columnsWith({ since: 1, default: "parameter" });

/** The parameter's setting for session, role, database or server, or else the file's value. */
export function parameterDefault(column: ParameterColumn, type: string, parameters: FileParameters): string {
  const setting = `current_setting(${literal(`pg_task.${column}`)}, true)`;
  const value = String(parameters[`pg_task.${column}`]);
  return `COALESCE(NULLIF(${setting}, ''), ${literal(value)}::text)::${type}`;
}

/** The id of the task in whose session the row is inserted, or null outside of a task. */
const parentDefault = `NULLIF(NULLIF(current_setting('pg_task.id', true), ''), '0')::bigint`;

/** What the pg_task extension sets for `parent`. With it, INSERT fails where the setting `pg_task.id` is unknown. */
const extensionParent = /^NULLIF\(\(current_setting\('pg_task\.id'::text\)\)::bigint, .+\)$/;

/**
 * Keeps defaults that users chose. Alters only those that differ, because ALTER TABLE has to wait for every producer.
 *
 * @param isAdopted whether the table is being adopted. It lacks the columns of later versions then.
 * @returns true if a default was altered.
 * @throws PgTaskError CONFIG_INVALID if the server rejects the expression in `pg_task.plan`.
 */
export async function applyColumnDefaults(
  client: Client,
  table: TaskTable,
  parameters: FileParameters,
  isAdopted = false,
): Promise<boolean> {
  const current = await currentDefaults(client, table);
  const changes: string[] = [];
  const parent = current.get("parent")?.default ?? null;
  if (parent === null || extensionParent.test(parent)) {
    changes.push(alter("parent", parentDefault));
  }
  for (const column of isAdopted ? parameterColumns : columnsWith({ default: "parameter" })) {
    const found = current.get(column) ?? missing;
    if (!isToChange(found, column, String(parameters[`pg_task.${column}`]))) continue;
    changes.push(alter(column, parameterDefault(column, found.type, parameters)));
  }
  if (changes.length > 0) {
    await client.query(`ALTER TABLE ${table.qualified} ${changes.join(", ")}`);
  }
  const plan = current.get("plan")?.default ?? null;
  const planned = await applyPlanDefault(client, table, plan, parameters["pg_task.plan"]);
  return changes.length > 0 || planned;
}

/** Whether the default is missing, is the pg_task extension's, or is pg-task's with another value than the file's. */
function isToChange({ default: found, type }: Column, column: string, value: string): boolean {
  if (found === null) return true;
  const ownValue = fileValue(found, column, type);
  return ownValue === null ? isExtensionDefault(found, column) : ownValue !== value;
}

const alter = (column: string, expression: string): string =>
  `ALTER COLUMN ${identifier(column)} SET DEFAULT ${expression}`;

function fileValue(found: string, column: string, type: string): string | null {
  const isText = type === "text";
  const before = `${isText ? "" : "("}COALESCE(NULLIF(current_setting('pg_task.${column}'::text, true), ''::text), '`;
  const after = `'::text)${isText ? "" : `)::${type}`}`;
  if (!found.startsWith(before) || !found.endsWith(after)) return null;
  const quoted = found.slice(before.length, -after.length);
  return /^(?:[^']|'')*$/.test(quoted) ? quoted.replaceAll("''", "'") : null;
}

/** Such a default makes INSERT fail where the setting is unknown. Older versions of the extension use other names. */
function isExtensionDefault(found: string, column: string): boolean {
  const bare = found.replaceAll(/[()]|::(?:"[^"]+"|[\w ]+)/g, "");
  return new RegExp(`^current_setting'pg_(?:task|work)\\.(?:default_)?${column}'(?:, false)?$`).test(bare);
}

interface Column {
  /** The type's name as `format_type` shows it when `search_path` is `pg_catalog`. */
  readonly type: string;
  readonly default: string | null;
}

/**
 * SQL of the default of the column `a`, which `d` has. If the table is named, servers before 18 compare the names of all
 * its columns for each expression, which takes seconds for a thousand columns. Only generated columns need it.
 */
export const defaultExpression =
  "pg_catalog.pg_get_expr(d.adbin, CASE WHEN a.attgenerated = '' THEN 0 ELSE d.adrelid END)";

async function currentDefaults(client: Client, table: TaskTable): Promise<Map<string, Column>> {
  const { rows } = await client.query<Column & { column: string }>(
    `SELECT a.attname AS column, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
       ${defaultExpression} AS default
     FROM pg_catalog.pg_attribute a
     LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
     WHERE a.attrelid = $1::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped`,
    [table.qualified],
  );
  return new Map(rows.map((row) => [row.column, row]));
}

/** Takes the place of a column that does not exist, so that ALTER TABLE fails with the server's own error message. */
const missing: Column = { type: "text", default: null };
