import type { FileParameters } from "../shared/config/types.js";
import type { Client } from "../shared/database.js";
import { identifier, literal } from "../shared/sqlText.js";
import { applyPlanDefault } from "./planDefault.js";
import type { TaskTable } from "./table.js";

/** Columns whose default is the parameter of their name, and the type its text is cast to. */
const parameterColumns = [
  ["active", "interval"],
  ["live", "interval"],
  ["repeat", "interval"],
  ["keep", "interval"],
  ["timeout", "interval"],
  ["count", "integer"],
  ["max", "integer"],
  ["delete", "boolean"],
  ["drift", "boolean"],
  ["header", "boolean"],
  ["save", "boolean"],
  ["string", "boolean"],
  ["atomic", "boolean"],
  ["delimiter", '"char"'],
  ["escape", '"char"'],
  ["quote", '"char"'],
  ["group", "text"],
  ["null", "text"],
] as const;

/** The id of the task whose session inserts. */
const parentDefault = `NULLIF(NULLIF(current_setting('pg_task.id', true), ''), '0')::bigint`;

/** As the extension has it, which fails where nobody made the setting. */
const extensionParent = /^NULLIF\(\(current_setting\('pg_task\.id'::text\)\)::bigint, .+\)$/;

/**
 * Gives columns the defaults that follow session, role, database, server and, where none of those
 * made the setting, the file. A default somebody else chose is left alone; nothing is altered where
 * nothing changes, since an ALTER TABLE would wait for every producer.
 *
 * @returns whether something was altered.
 * @throws PgTaskError CONFIG_INVALID when the server does not understand `pg_task.plan`.
 */
export async function applyColumnDefaults(
  client: Client,
  table: TaskTable,
  parameters: FileParameters,
): Promise<boolean> {
  const current = await currentDefaults(client, table);
  const changes: string[] = [];
  const parent = current.get("parent") ?? null;
  if (parent === null || extensionParent.test(parent)) {
    changes.push(alter("parent", parentDefault));
  }
  for (const [column, type] of parameterColumns) {
    const wanted = String(parameters[`pg_task.${column}`]);
    const found = current.get(column) ?? null;
    const ours = found === null ? null : fileValue(found, column, type);
    if (ours === wanted) continue;
    if (found !== null && ours === null && !isExtensions(found, column)) continue;
    const setting = `current_setting(${literal(`pg_task.${column}`)}, true)`;
    changes.push(
      alter(column, `COALESCE(NULLIF(${setting}, ''), ${literal(wanted)}::text)::${type}`),
    );
  }
  if (changes.length > 0) {
    await client.query(`ALTER TABLE ${table.qualified} ${changes.join(", ")}`);
  }
  const plan = current.get("plan") ?? null;
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

/** The extension's own default fails where nobody made the setting. */
function isExtensions(found: string, column: string): boolean {
  const bare = found.replaceAll(/[()]|::[\w" ]+/g, "");
  return bare === `current_setting'pg_task.${column}'`;
}

async function currentDefaults(
  client: Client,
  table: TaskTable,
): Promise<Map<string, string | null>> {
  const { rows } = await client.query<{ column: string; default: string | null }>(
    `SELECT a.attname AS column, pg_catalog.pg_get_expr(d.adbin, d.adrelid) AS default
     FROM pg_catalog.pg_attribute a
     LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
     WHERE a.attrelid = $1::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped`,
    [table.qualified],
  );
  return new Map(rows.map((row) => [row.column, row.default]));
}
