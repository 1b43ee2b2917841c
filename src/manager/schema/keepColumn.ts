import { identifier, literal } from "../../shared/postgres/quoting.js";
import type { Client } from "../../shared/postgres/client.js";
import { ensureIndex, type Index } from "./adoption/indexes.js";
import { readLayout } from "./adoption/layout.js";
import { migrationText, render } from "./migrations.js";
import type { TaskTable } from "./taskTable.js";

const [, columnDefinition = "", check = ""] =
  /ADD COLUMN (keep .*?) CHECK (\(keep [^)]*\));/s.exec(migrationText(2)) ?? [];
const [, indexDefinition = ""] = /CREATE INDEX .*? (\(id\) WHERE .*);/.exec(migrationText(2)) ?? [];

const index: Index = {
  suffix: "keep_idx",
  column: "id",
  predicate: "(keep > '00:00:00'::interval)",
  definition: indexDefinition,
  unique: false,
};

/**
 * Does of the second migration what has to read the whole table, before that migration locks it: the
 * check is validated and the index built beside everybody who writes. Cut off anywhere, it begins
 * again and finds what is done.
 *
 * @param lockTimeoutMs how long the table may be waited for while producers wait behind.
 */
export async function prepareKeep(
  client: Client,
  table: TaskTable,
  lockTimeoutMs: number,
): Promise<void> {
  const layout = await readLayout(client, table);
  if (!layout.columns.has("keep")) await addColumn(client, table, lockTimeoutMs);
  for (const name of await unvalidated(client, table)) {
    await client.query(`ALTER TABLE ${table.qualified} VALIDATE CONSTRAINT ${identifier(name)}`);
  }
  await ensureIndex(client, table, layout, index);
}

async function addColumn(client: Client, table: TaskTable, lockTimeoutMs: number): Promise<void> {
  await client.query("BEGIN");
  try {
    await client.query(`SET LOCAL lock_timeout = ${lockTimeoutMs}`);
    await client.query(
      `ALTER TABLE ${table.qualified} ADD COLUMN ${render(columnDefinition, table)},
         ADD CHECK ${check} NOT VALID`,
    );
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK").catch(() => {});
    throw error;
  }
}

/** Checks of the column alone that the rows that are there have not been held against. */
async function unvalidated(client: Client, table: TaskTable): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT conname AS name FROM pg_constraint AS c JOIN pg_attribute AS a
       ON a.attrelid = c.conrelid AND c.conkey = ARRAY[a.attnum]
     WHERE c.conrelid = ${literal(table.qualified)}::regclass AND c.contype = 'c'
       AND NOT c.convalidated AND a.attname = 'keep'`,
  );
  return rows.map(({ name }) => name);
}
