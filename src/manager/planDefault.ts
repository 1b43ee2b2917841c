import { sqlState, type Client } from "../shared/database.js";
import { PgTaskError } from "../shared/errors.js";
import { identifier, literal } from "../shared/sqlText.js";
import type { TaskTable } from "./table.js";

/**
 * Gives the column plan the file's expression, where its default is not one that the user chose.
 * What tells the two apart is a record of what pg-task itself last made it.
 *
 * @param found the default it has, as the server shows it
 * @returns whether something was altered.
 * @throws PgTaskError CONFIG_INVALID when the server does not understand the expression.
 */
export async function applyPlanDefault(
  client: Client,
  table: TaskTable,
  found: string | null,
  expression: string,
): Promise<boolean> {
  if (found !== null) {
    const { record } = await readRecord(client, table);
    const isUsers = !record.startsWith(given("")) || !record.endsWith(shownAs(found));
    if (isUsers || record === given(expression) + shownAs(found)) return false;
  }
  await alter(client, table, expression);
  await writeRecord(client, table, expression);
  return true;
}

async function alter(client: Client, table: TaskTable, expression: string): Promise<void> {
  try {
    // On a line of its own the bracket is not part of a comment that ends the expression.
    await client.query(
      `ALTER TABLE ${table.qualified} ALTER COLUMN plan SET DEFAULT (${expression}\n)`,
    );
  } catch (error) {
    const state = sqlState(error);
    const misunderstood = state !== null && /^(?:0A|22|42(?!501))/.test(state);
    if (!misunderstood || !(error instanceof Error)) throw error;
    throw new PgTaskError(
      "CONFIG_INVALID",
      `expected pg_task.plan to be an expression for the default of ${table.qualified}.plan, got ${JSON.stringify(expression)}: ${error.message}`,
      { cause: error },
    );
  }
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
