import { sqlState, type Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import type { TaskTable } from "./taskTable.js";

/**
 * Gives the column plan a default that follows session, role, database and server and, where none of
 * those made the setting, is the file's expression, unless the user chose another default. What tells the
 * two apart is a record of what pg-task itself last made it.
 *
 * @param found the default it has, as the server shows it
 * @returns whether something was altered.
 * @throws PgTaskError CONFIG_INVALID when the server does not understand the expression.
 */
export async function applyPlanDefault(
  client: Client,
  table: TaskTable,
  found: string | null,
  fileExpression: string,
): Promise<boolean> {
  const whole = await settingFirst(client, table, fileExpression);
  const expression = whole ?? fileExpression;
  if (found !== null) {
    const { record } = await readRecord(client, table);
    const isUsers = !record.startsWith(given("")) || !record.endsWith(shownAs(found));
    if (isUsers || record === given(expression) + shownAs(found)) return false;
  }
  await alter(client, table, fileExpression, whole);
  await writeRecord(client, table, expression);
  return true;
}

/** Null where the function that reads the setting is for a later migration to make. */
async function settingFirst(
  client: Client,
  { qualifiedPlanned }: TaskTable,
  expression: string,
): Promise<string | null> {
  const { rows } = await client.query<{ there: boolean }>(
    "SELECT pg_catalog.to_regprocedure($1) IS NOT NULL AS there",
    [`${qualifiedPlanned}(text)`],
  );
  if (rows[0]?.there !== true) return null;
  const setting = "current_setting('pg_task.plan', true)";
  return `CASE WHEN NULLIF(${setting}, '') IS NULL THEN ${bracketed(expression)} ELSE ${qualifiedPlanned}(${setting}) END`;
}

/** On a line of its own the bracket is not part of a comment that ends the expression. */
const bracketed = (expression: string): string => `(${expression}\n)`;

/** The file's expression comes first by itself, so that the server's words are about that. */
async function alter(
  client: Client,
  table: TaskTable,
  fileExpression: string,
  expression: string | null,
): Promise<void> {
  const own = bracketed(fileExpression);
  try {
    for (const each of expression === null ? [own] : [own, `(${expression})`]) {
      await client.query(`ALTER TABLE ${table.qualified} ALTER COLUMN plan SET DEFAULT ${each}`);
    }
  } catch (error) {
    throw misunderstood(error, table, fileExpression);
  }
}

/**
 * Asks the server whether it understands the expression; it evaluates and changes nothing.
 *
 * @throws PgTaskError CONFIG_INVALID when it does not.
 */
export async function refusePlan(
  client: Client,
  table: TaskTable,
  fileExpression: string,
): Promise<void> {
  const text = `PREPARE pg_task_plan AS VALUES (COALESCE(NULL::timestamptz, ${bracketed(fileExpression)}))`;
  try {
    // By its name it goes as one statement at most, whatever the expression holds.
    await client.query({ name: "pg_task plan", text });
  } catch (error) {
    throw misunderstood(error, table, fileExpression);
  }
  await client.query("DEALLOCATE pg_task_plan");
}

/** What the server has against the expression; anything else as it is. */
function misunderstood(error: unknown, { qualified }: TaskTable, fileExpression: string): unknown {
  const state = sqlState(error);
  const itIs = state !== null && /^(?:0A|22|42(?!501))/.test(state);
  if (!itIs || !(error instanceof Error)) return error;
  return new PgTaskError(
    "CONFIG_INVALID",
    `expected pg_task.plan to be an expression for the default of ${qualified}.plan, got ${JSON.stringify(fileExpression)}: ${error.message}`,
    { cause: error },
  );
}

const given = (expression: string): string => `pg-task plan ${expression}`;
const shownAs = (expression: string): string => `\nshown as ${expression}`;

/**
 * It stands in a comment of pg-task's own trigger, so that it goes wherever the table goes. Before
 * PostgreSQL 13 a partitioned table has but the wake-up.
 */
async function readRecord(
  client: Client,
  table: TaskTable,
): Promise<{ trigger: string; record: string }> {
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
     IS ${literal(given(expression) + shownAs(rows[0]?.shown ?? ""))}`,
  );
}
