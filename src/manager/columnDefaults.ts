import type { FileParameters } from "../shared/config/types.js";
import type { Client } from "../shared/database.js";
import { identifier, literal } from "../shared/sqlText.js";
import type { TaskTable } from "./table.js";

/** Columns whose default is the parameter of their name, and the type its text is cast to. */
const parameterColumns = [
  ["active", "interval"],
  ["live", "interval"],
  ["repeat", "interval"],
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

/** Default of the column plan when nobody says otherwise. */
const usualPlan = "statement_timestamp()";
/** Tells an expression that came from the file from one that the table's owner chose. */
const planMark = "'pg_task.plan'";

/**
 * Gives columns the defaults that follow session, role, database, server and, where none of those
 * made the setting, the file. A default somebody else chose is left alone; nothing is altered where
 * nothing changes, since an ALTER TABLE would wait for every producer.
 *
 * @returns whether something was altered.
 */
export async function applyColumnDefaults(
  client: Client,
  table: TaskTable,
  parameters: FileParameters,
): Promise<boolean> {
  const current = await currentDefaults(client, table);
  const changes: string[] = [];
  const parent = current.get("parent") ?? null;
  if (parent === null || parent.includes("'pg_task.id'")) {
    const wanted = `NULLIF(NULLIF(current_setting('pg_task.id', true), ''), '0')::bigint`;
    if (parent === null || !parent.includes("NULLIF")) changes.push(alter("parent", wanted));
  }
  const plan = current.get("plan") ?? null;
  const planned = parameters["pg_task.plan"];
  if (planned !== usualPlan) {
    const wanted = `CASE WHEN ${planMark} <> '' THEN (${planned}) END`;
    if (plan !== (await rendered(client, wanted))) changes.push(alter("plan", wanted));
  } else if (plan === null || plan.includes(planMark)) changes.push(alter("plan", planned));
  for (const [column, type] of parameterColumns) {
    const wanted = String(parameters[`pg_task.${column}`]);
    const found = current.get(column) ?? null;
    if (!isOurs(found, column) || fileValue(found) === wanted) continue;
    const setting = `current_setting(${literal(`pg_task.${column}`)}, true)`;
    changes.push(
      alter(column, `COALESCE(NULLIF(${setting}, ''), ${literal(wanted)}::text)::${type}`),
    );
  }
  if (changes.length === 0) return false;
  await client.query(`ALTER TABLE ${table.qualified} ${changes.join(", ")}`);
  return true;
}

const alter = (column: string, expression: string): string =>
  `ALTER COLUMN ${identifier(column)} SET DEFAULT ${expression}`;

/** No default yet, one of ours, or the extension's own, which cannot work without it. */
function isOurs(found: string | null, column: string): boolean {
  return found === null || found.includes(`current_setting('pg_task.${column}'`);
}

/** The file's value as it stands in a default of ours, null when the default is not ours. */
function fileValue(found: string | null): string | null {
  const match = /^\(*COALESCE\(NULLIF\(.*?, ''::text\), (E?)'((?:[^']|'')*)'::text\)/s.exec(
    found ?? "",
  );
  if (match === null) return null;
  const text = (match[2] ?? "").replaceAll("''", "'");
  return match[1] === "E" ? text.replaceAll("\\\\", "\\") : text;
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

/** An expression as the server would show it: a temporary table's default, thrown away at once. */
async function rendered(client: Client, expression: string): Promise<string | null> {
  await client.query("SAVEPOINT rendering");
  await client.query(
    `CREATE TEMPORARY TABLE pg_task_rendering (plan timestamptz DEFAULT ${expression})`,
  );
  const { rows } = await client.query<{ default: string | null }>(
    `SELECT pg_catalog.pg_get_expr(adbin, adrelid) AS default FROM pg_catalog.pg_attrdef
     WHERE adrelid = 'pg_temp.pg_task_rendering'::pg_catalog.regclass`,
  );
  await client.query("ROLLBACK TO SAVEPOINT rendering");
  return rows[0]?.default ?? null;
}
