import { sqlState, type Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import type { TaskTable } from "./taskTable.js";

/**
 * Sets the default of the column `plan`, unless the user chose one: it differs from the one that pg-task has recorded.
 *
 * @returns true if the default was altered.
 * @throws PgTaskError CONFIG_INVALID if the server rejects the expression.
 */
export async function applyPlanDefault(
  client: Client,
  table: TaskTable,
  found: string | null,
  fileExpression: string,
): Promise<boolean> {
  const expression = settingFirst(table, fileExpression);
  if (found !== null) {
    const { record } = await readRecord(client, table);
    const isUsers = !record.startsWith(recordOf("")) || !record.endsWith(shownAs(found));
    if (isUsers || record === recordOf(expression) + shownAs(found)) return false;
  }
  await alter(client, table, fileExpression, expression);
  await writeRecord(client, table, expression);
  return true;
}

/** SQL of the setting of session, role, database or server, or else the configuration file's expression. */
function settingFirst({ qualifiedPlanned }: TaskTable, expression: string): string {
  const setting = "current_setting('pg_task.plan', true)";
  return `CASE WHEN NULLIF(${setting}, '') IS NULL THEN ${parenthesized(expression)} ELSE ${qualifiedPlanned}(${setting}) END`;
}

/** The closing parenthesis is on its own line in case the expression ends with a comment. */
const parenthesized = (expression: string): string => `(${expression}\n)`;

/** In two steps, so that an error message of the first refers only to the configuration file's expression. */
async function alter(client: Client, table: TaskTable, fileExpression: string, expression: string): Promise<void> {
  try {
    for (const each of [parenthesized(fileExpression), `(${expression})`]) {
      await client.query(`ALTER TABLE ${table.qualified} ALTER COLUMN plan SET DEFAULT ${each}`);
    }
  } catch (error) {
    throw toPlanError(error, table, fileExpression);
  }
}

/** Lets the server parse the expression. @throws PgTaskError CONFIG_INVALID if it rejects it */
export async function refusePlan(client: Client, table: TaskTable, fileExpression: string): Promise<void> {
  const text = `PREPARE pg_task_plan AS VALUES (COALESCE(NULL::timestamptz, ${parenthesized(fileExpression)}))`;
  try {
    // A named query uses the extended protocol, which accepts only a single statement.
    await client.query({ name: "pg_task plan", text });
  } catch (error) {
    throw toPlanError(error, table, fileExpression);
  }
  await client.query("DEALLOCATE pg_task_plan");
}

function toPlanError(error: unknown, { qualified }: TaskTable, fileExpression: string): unknown {
  const state = sqlState(error);
  const isExpressionError = state !== null && /^(?:0A|22|42(?!501))/.test(state);
  if (!isExpressionError || !(error instanceof Error)) return error;
  return new PgTaskError(
    "CONFIG_INVALID",
    `expected pg_task.plan to be an expression for the default of ${qualified}.plan, got ${JSON.stringify(fileExpression)}: ${error.message}`,
    { cause: error },
  );
}

const recordOf = (expression: string): string => `pg-task plan ${expression}`;
const shownAs = (expression: string): string => `\nshown as ${expression}`;

/**
 * The record stays with the table as the comment of the trigger that sets `ready` at each INSERT. A partitioned table
 * before PostgreSQL 13 cannot have that, and its wake-up trigger is used.
 */
async function readRecord(client: Client, table: TaskTable): Promise<{ trigger: string; record: string }> {
  const { rows } = await client.query<{ trigger: string; record: string }>(
    `SELECT tgname AS trigger, coalesce(pg_catalog.obj_description(oid, 'pg_trigger'), '') AS record
     FROM pg_catalog.pg_trigger WHERE tgrelid = $1::pg_catalog.regclass AND tgname = ANY ($2::text[])
     ORDER BY tgname <> $3 LIMIT 1`,
    [table.qualified, [table.readyInsertTrigger, table.wakeUp], table.readyInsertTrigger],
  );
  return rows[0] ?? { trigger: table.readyInsertTrigger, record: "" };
}

async function writeRecord(client: Client, table: TaskTable, expression: string): Promise<void> {
  const { rows } = await client.query<{ shown: string }>(
    `SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid) AS shown
     FROM pg_catalog.pg_attrdef d JOIN pg_catalog.pg_attribute a
       ON a.attrelid = d.adrelid AND a.attnum = d.adnum
     WHERE a.attrelid = $1::pg_catalog.regclass AND a.attname = 'plan'`,
    [table.qualified],
  );
  const { trigger } = await readRecord(client, table);
  await client.query(
    `COMMENT ON TRIGGER ${identifier(trigger)} ON ${table.qualified}
     IS ${literal(recordOf(expression) + shownAs(rows[0]?.shown ?? ""))}`,
  );
}
