import type { FileParameters } from "../../../shared/config/parameterTable.js";
import type { Client } from "../../../shared/postgres/client.js";
import { identifier } from "../../../shared/postgres/quoting.js";
import { addedColumnChanges, addedColumns, columnComments, hashDefinition } from "../columns.js";
import { parameterColumns, parameterDefault } from "../columnDefaults.js";
import type { ColumnName } from "../../../shared/taskColumns.js";
import { objectName, type TaskTable } from "../taskTable.js";
import { expectedColumns, requiredColumns, type ExpectedColumn } from "./expectedColumns.js";
import type { Layout } from "./layout.js";

export function missingColumns({ columns }: Layout): ExpectedColumn[] {
  return expectedColumns.filter(({ name }) => !columns.has(name));
}

export const missingColumnNames = (layout: Layout): ColumnName[] => [
  ...missingColumns(layout).map(({ name }) => name),
  ...addedColumns.filter((name) => !layout.columns.has(name)),
];

export const describeMissingColumns = (names: readonly string[]): string =>
  `it no longer has the column${names.length === 1 ? "" : "s"} ${names.join(", ")}`;

/**
 * Adds missing columns in the caller's transaction, without rewriting rows. Existing rows get the current default of
 * each new column. The exception is `ready`, which stays null to keep these rows out of the queue.
 */
export async function addColumns(
  client: Client,
  table: TaskTable,
  layout: Layout,
  parameters: FileParameters,
): Promise<void> {
  const missing = missingColumns(layout);
  const changes = missing.flatMap((column) => additions(column, parameters));
  if (missing.some(({ name }) => name === "ready") || layout.columns.get("ready")?.default === null)
    changes.push("ALTER COLUMN ready SET DEFAULT true");
  if (layout.columns.get("state")?.default === null) changes.push("ALTER COLUMN state SET DEFAULT 'PLAN'");
  if (changes.length > 0) {
    await client.query(`ALTER TABLE ${table.qualified} ${changes.join(", ")}`);
  }
  if (missing.length > 0) await client.query(columnComments(table, missing));
  await ensureIdDefault(client, table, layout);
}

const additions = ({ name, type, check }: ExpectedColumn, parameters: FileParameters): string[] => [
  `ADD COLUMN ${identifier(name)} ${type}${addedColumnDefault(name, type, parameters)}`,
  // Every row has the default, which satisfies the check. Validation would scan the table for nothing.
  ...(check === undefined ? [] : [`ADD CHECK (${check}) NOT VALID`]),
];

/** Returns the statement that adds a dropped column again. Null if no value would suit the existing rows. */
export function restoreStatement(
  { qualified }: TaskTable,
  name: ColumnName,
  parameters: FileParameters,
): string | null {
  if (requiredColumns.includes(name)) return null;
  const column = expectedColumns.find((each) => each.name === name);
  const changes =
    column === undefined
      ? addedColumnChanges(name)
      : additions(name === "hash" ? { ...column, type: hashDefinition } : column, parameters);
  if (name === "ready") changes.push("ALTER COLUMN ready SET DEFAULT true");
  return `ALTER TABLE ${qualified} ${changes.join(", ")}`;
}

function addedColumnDefault(name: string, type: string, parameters: FileParameters): string {
  const column = parameterColumns.find((each) => each === name);
  if (column !== undefined) {
    // The file's `keep` applies to new rows only. Otherwise, tasks that finished before adoption would be pruned.
    const values = name === "keep" ? { ...parameters, "pg_task.keep": "0 sec" } : parameters;
    return ` NOT NULL DEFAULT ${parameterDefault(column, type, values)}`;
  }
  return name === "crash" ? " NOT NULL DEFAULT 0" : "";
}

/** Gives the column `id` a sequence if it has no default, from which successors get their ids. */
async function ensureIdDefault(
  client: Client,
  { schema, table, qualified }: TaskTable,
  { columns }: Layout,
): Promise<void> {
  const id = columns.get("id");
  if (id === undefined || id.identity || id.default !== null) return;
  const sequence = `${identifier(schema)}.${identifier(objectName(table, "id_seq"))}`;
  await client.query(`CREATE SEQUENCE ${sequence} OWNED BY ${qualified}.id`);
  await client.query(`SELECT setval($1, greatest(max(id), 0) + 1, false) FROM ${qualified}`, [sequence]);
  await client.query(
    `ALTER TABLE ${qualified} ALTER COLUMN id SET DEFAULT nextval('${sequence.replaceAll("'", "''")}')`,
  );
}
