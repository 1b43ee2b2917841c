import type { FileParameters } from "../../../shared/config/types.js";
import type { Client } from "../../../shared/postgres/client.js";
import { identifier } from "../../../shared/postgres/quoting.js";
import { parameterColumns, parameterDefault } from "../columnDefaults.js";
import { firstMigration, render } from "../migrations.js";
import { objectName, type TaskTable } from "../taskTable.js";
import { expectedColumns, type ExpectedColumn } from "./expectedColumns.js";
import type { Layout } from "./layout.js";

export function missingColumns({ columns }: Layout): ExpectedColumn[] {
  return expectedColumns.filter(({ name }) => !columns.has(name));
}

/** Columns that a table of pg-task's own, brought up to date, has lost: they were dropped or renamed. */
export function lostColumns(layout: Layout): string[] {
  const lost = missingColumns(layout).map(({ name }) => name);
  return layout.columns.has("keep") ? lost : [...lost, "keep"];
}

export const lostText = (lost: readonly string[]): string =>
  `it has no column${lost.length === 1 ? "" : "s"} ${lost.join(", ")} any more`;

/**
 * Adds the columns that are missing, inside the caller's transaction and without touching a row:
 * those there are get the default of now, but for `ready`, which leaves them out of the queue.
 */
export async function addColumns(
  client: Client,
  table: TaskTable,
  layout: Layout,
  parameters: FileParameters,
): Promise<void> {
  const missing = missingColumns(layout);
  const changes = missing.flatMap(({ name, type, check }) => [
    `ADD COLUMN ${identifier(name)} ${type}${whenAdded(name, type, parameters)}`,
    // Not valid only in name: every row has the default.
    ...(check === undefined ? [] : [`ADD CHECK (${check}) NOT VALID`]),
  ]);
  if (missing.some(({ name }) => name === "ready") || layout.columns.get("ready")?.default === null)
    changes.push("ALTER COLUMN ready SET DEFAULT true");
  if (layout.columns.get("state")?.default === null)
    changes.push("ALTER COLUMN state SET DEFAULT 'PLAN'");
  if (changes.length > 0) {
    await client.query(`ALTER TABLE ${table.qualified} ${changes.join(", ")}`);
  }
  for (const statement of firstMigration) {
    const [, name] = /^COMMENT ON COLUMN :"schema"\.:"table"\."?(\w+)"? /.exec(statement) ?? [];
    if (missing.some((column) => column.name === name)) {
      await client.query(render(statement, table));
    }
  }
  await numberRows(client, table, layout);
}

function whenAdded(name: string, type: string, parameters: FileParameters): string {
  const column = parameterColumns.find((each) => each === name);
  if (column !== undefined) {
    return ` NOT NULL DEFAULT ${parameterDefault(column, type, parameters)}`;
  }
  return name === "crash" ? " NOT NULL DEFAULT 0" : "";
}

/** A repeated task gets its id by the column's default, so there has to be one. */
async function numberRows(
  client: Client,
  { schema, table, qualified }: TaskTable,
  { columns }: Layout,
): Promise<void> {
  const id = columns.get("id");
  if (id === undefined || id.identity || id.default !== null) return;
  const sequence = `${identifier(schema)}.${identifier(objectName(table, "id_seq"))}`;
  await client.query(`CREATE SEQUENCE ${sequence} OWNED BY ${qualified}.id`);
  await client.query(`SELECT setval($1, greatest(max(id), 0) + 1, false) FROM ${qualified}`, [
    sequence,
  ]);
  await client.query(
    `ALTER TABLE ${qualified} ALTER COLUMN id SET DEFAULT nextval('${sequence.replaceAll("'", "''")}')`,
  );
}
