import { identifier } from "../../shared/postgres/quoting.js";
import type { Layout } from "./adoption/layout.js";
import { migrations, type TableRecord } from "./migrations.js";

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

/** The columns that the second migration adds. */
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

/**
 * Returns the columns of the table that have the name of an added column but belong to the user. Meant for a table whose
 * recorded version is below `columnsVersion`. A column with pg-task's own comment was added by a migration whose record
 * was lost.
 */
export const foreignColumns = ({ columns: found }: Layout, { formerColumns }: TableRecord): string[] =>
  addedColumns.filter((name) => {
    const column = found.get(name);
    if (column === undefined) return false;
    return formerColumns.length > 0 ? formerColumns.includes(name) : column.comment !== columns.get(name)?.comment;
  });
