import type { FileParameters } from "../../shared/config/types.js";
import type { Client } from "../../shared/postgres/client.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import { applyPlanDefault } from "./planDefault.js";
import type { TaskTable } from "./taskTable.js";

/** Columns whose default is the parameter of their name. */
export const parameterColumns = [
  "active",
  "live",
  "repeat",
  "keep",
  "timeout",
  "count",
  "max",
  "delete",
  "drift",
  "header",
  "save",
  "string",
  "atomic",
  "delimiter",
  "escape",
  "quote",
  "group",
  "null",
] as const;

type ParameterColumn = (typeof parameterColumns)[number];

/** The default of such a column: what the session, role, database or server says, else the file. */
export function parameterDefault(
  column: ParameterColumn,
  type: string,
  parameters: FileParameters,
): string {
  const setting = `current_setting(${literal(`pg_task.${column}`)}, true)`;
  const value = String(parameters[`pg_task.${column}`]);
  return `COALESCE(NULLIF(${setting}, ''), ${literal(value)}::text)::${type}`;
}

/** The id of the task whose session inserts. */
const parentDefault = `NULLIF(NULLIF(current_setting('pg_task.id', true), ''), '0')::bigint`;

/** As the extension has it, which fails where nobody made the setting. */
const extensionParent = /^NULLIF\(\(current_setting\('pg_task\.id'::text\)\)::bigint, .+\)$/;

/**
 * Gives columns the defaults that follow session, role, database, server and, where none of those
 * made the setting, the file. A default somebody else chose is left alone; nothing is altered where
 * nothing changes, since an ALTER TABLE would wait for every producer.
 *
 * @param still columns that a later migration brings; any other that is missing is an error.
 * @returns whether something was altered.
 * @throws PgTaskError CONFIG_INVALID when the server does not understand `pg_task.plan`.
 */
export async function applyColumnDefaults(
  client: Client,
  table: TaskTable,
  parameters: FileParameters,
  still: readonly ParameterColumn[] = [],
): Promise<boolean> {
  const current = await currentDefaults(client, table);
  const changes: string[] = [];
  const parent = current.get("parent")?.default ?? null;
  if (parent === null || extensionParent.test(parent)) {
    changes.push(alter("parent", parentDefault));
  }
  for (const column of parameterColumns) {
    if (still.includes(column) && !current.has(column)) continue;
    const { default: found, type } = current.get(column) ?? missing;
    const ours = found === null ? null : fileValue(found, column, type);
    if (ours === String(parameters[`pg_task.${column}`])) continue;
    if (found !== null && ours === null && !isExtensions(found, column)) continue;
    changes.push(alter(column, parameterDefault(column, type, parameters)));
  }
  if (changes.length > 0) {
    await client.query(`ALTER TABLE ${table.qualified} ${changes.join(", ")}`);
  }
  const plan = current.get("plan")?.default ?? null;
  const planned = await applyPlanDefault(client, table, plan, parameters["pg_task.plan"]);
  return changes.length > 0 || planned;
}

const alter = (column: string, expression: string): string =>
  `ALTER COLUMN ${identifier(column)} SET DEFAULT ${expression}`;

/** The file's value as it stands in a default of ours, null when the default is not ours. */
function fileValue(found: string, column: string, type: string): string | null {
  const isText = type === "text";
  const before = `${isText ? "" : "("}COALESCE(NULLIF(current_setting('pg_task.${column}'::text, true), ''::text), '`;
  const after = `'::text)${isText ? "" : `)::${type}`}`;
  if (!found.startsWith(before) || !found.endsWith(after)) return null;
  const quoted = found.slice(before.length, -after.length);
  return /^(?:[^']|'')*$/.test(quoted) ? quoted.replaceAll("''", "'") : null;
}

/** The extension's own default fails where nobody made the setting; older ones call it otherwise. */
function isExtensions(found: string, column: string): boolean {
  const bare = found.replaceAll(/[()]|::(?:"[^"]+"|[\w ]+)/g, "");
  return new RegExp(
    `^current_setting'pg_(?:task|work)\\.(?:default_)?${column}'(?:, false)?$`,
  ).test(bare);
}

interface Column {
  /** As an expression over the types that pg_catalog has. */
  readonly type: string;
  readonly default: string | null;
}

/** The server says that the column is not there. */

async function currentDefaults(client: Client, table: TaskTable): Promise<Map<string, Column>> {
  const { rows } = await client.query<Column & { column: string }>(
    `SELECT a.attname AS column, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
       pg_catalog.pg_get_expr(d.adbin, d.adrelid) AS default
     FROM pg_catalog.pg_attribute a
     LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
     WHERE a.attrelid = $1::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped`,
    [table.qualified],
  );
  return new Map(rows.map((row) => [row.column, row]));
}

/** Altering it says that it is missing, in the server's words. */
const missing: Column = { type: "text", default: null };
