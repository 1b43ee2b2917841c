import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { migrations, render } from "./migrations.js";
import type { TaskTable } from "./taskTable.js";

/** The version whose migration adds the columns. */
export const columnsVersion = 2;

const [columnsStatement = ""] = migrations
  .filter(({ version }) => version === columnsVersion)
  .flatMap(({ statements }) => statements.filter((each) => each.includes("ADD COLUMN")));

interface AddedColumn {
  readonly type: string;
  /** SQL of the default of new rows. Undefined if there is none. */
  readonly value: string | undefined;
  readonly comment: string;
}

/**
 * The columns that the second migration adds. A table may have had columns of these names before; they then belong to
 * the user.
 */
const columns: ReadonlyMap<string, AddedColumn> = new Map(
  [...columnsStatement.matchAll(/^ *\('(\w+)', '([^']+)', (?:NULL|'([^']+)'), '((?:[^']|'')+)'\),?$/gm)].map(
    ([, name = "", type = "", value, comment = ""]) => [name, { type, value, comment: comment.replaceAll("''", "'") }],
  ),
);

/** Names of the columns that the second migration adds, in their order. */
export const addedColumns: readonly string[] = [...columns.keys()];

/** Returns the parts of ALTER TABLE that add the column, with the default of new rows. */
export function addedColumnChanges(name: string): string[] {
  const { type, value } = columns.get(name) ?? { type: "text", value: undefined };
  const column = identifier(name);
  return [
    `ADD COLUMN ${column} ${type}`,
    ...(value === undefined ? [] : [`ALTER COLUMN ${column} SET DEFAULT ${value}`]),
  ];
}

/** Adds those of the columns that the table lacks, in the caller's transaction. */
export async function addMissingColumns(client: Client, table: TaskTable): Promise<void> {
  await client.query(render(columnsStatement, table));
}

/** Returns the names of the table's columns that have the name of an added column. */
export async function presentColumns(client: Client, table: TaskTable): Promise<ReadonlySet<string>> {
  return new Set((await readColumns(client, table)).map(({ name }) => name));
}

/**
 * Returns the columns that have the name of an added column but belong to the user. Meant for a table whose recorded
 * version is below `columnsVersion`. A column with pg-task's own comment was added by a migration whose record was
 * lost.
 */
export async function foreignColumns(client: Client, table: TaskTable): Promise<string[]> {
  const found = await readColumns(client, table);
  return found.filter(({ name, comment }) => comment !== columns.get(name)?.comment).map(({ name }) => name);
}

async function readColumns(
  client: Client,
  { qualified }: TaskTable,
): Promise<{ readonly name: string; readonly comment: string | null }[]> {
  const { rows } = await client.query<{ name: string; comment: string | null }>(
    `SELECT a.attname AS name, pg_catalog.col_description(a.attrelid, a.attnum) AS comment
     FROM pg_catalog.pg_attribute AS a
     WHERE a.attrelid = pg_catalog.to_regclass($1) AND a.attname = ANY ($2::text[]) AND NOT a.attisdropped
     ORDER BY a.attnum`,
    [qualified, addedColumns],
  );
  return rows;
}
