import type { Client } from "../../shared/postgres/client.js";
import { identifier, literal } from "../../shared/postgres/quoting.js";
import {
  columnList,
  taskColumns,
  type ColumnName,
  type NamedColumn,
  type TaskColumn,
} from "../../shared/taskColumns.js";
import { readLayout, type Layout } from "./adoption/layout.js";
import type { TaskTable } from "./taskTable.js";

export interface TableRecord {
  /** 0 if no version was recorded. */
  readonly version: number;
  /** The user's columns that had the name of a column of pg-task when an unreleased version recorded them. */
  readonly formerColumns: readonly string[];
}

/** The columns that later versions have added. */
export const columnsSince = (version: number): NamedColumn[] =>
  columnList.filter(({ since }) => since > Math.max(version, 1));

export const addedColumns: readonly ColumnName[] = columnsSince(1).map(({ name }) => name);

/** Columns whose definition in a new table is more than type, nullability and default. */
const definitions: Readonly<Partial<Record<ColumnName, string>>> = {
  id: "bigserial PRIMARY KEY",
  hash: `integer NOT NULL GENERATED ALWAYS AS (hashtext("group" || coalesce(remote, ''))) STORED`,
};

export const { hash: hashDefinition = "" } = definitions;

/** SQL of the columns of a new table. Defaults from parameters are set later. */
export const columnDefinitions = ({ stateType }: Pick<TaskTable, "stateType">): string =>
  columnList
    .map(({ name, type, nullable, default: value }) => {
      const known = definitions[name];
      if (known !== undefined) return `${identifier(name)} ${known}`;
      const hasDefault = value !== undefined && value !== "parameter";
      return `${identifier(name)} ${type === "state" ? stateType : type}${nullable === true ? "" : " NOT NULL"}${hasDefault ? ` DEFAULT ${value}` : ""}`;
    })
    .join(",\n  ");

/** Returns the parts of ALTER TABLE that add the column, with the default of new rows. */
export function addedColumnChanges(name: ColumnName): string[] {
  const { type, default: value }: TaskColumn = taskColumns[name];
  const column = identifier(name);
  return [
    `ADD COLUMN ${column} ${type}`,
    ...(value === undefined || value === "parameter" ? [] : [`ALTER COLUMN ${column} SET DEFAULT ${value}`]),
  ];
}

/** The comment of each column. Internal columns are recognized by the beginning of theirs. */
const comments: ReadonlyMap<string, string> = new Map(
  columnList.map(({ name, by, meaning }) => [
    name,
    by === "internal" ? `For pg-task's own use: ${meaning}` : `${meaning.slice(0, 1).toUpperCase()}${meaning.slice(1)}`,
  ]),
);

export const columnComments = ({ qualified }: TaskTable, columns: readonly { readonly name: string }[]): string =>
  columns
    .map(({ name }) => `COMMENT ON COLUMN ${qualified}.${identifier(name)} IS ${literal(comments.get(name) ?? "")}`)
    .join(";\n");

/** Sets defaults later, only for new rows, so that no row is rewritten. A column may exist if the record was lost. */
export async function addMissingColumns(client: Client, table: TaskTable, version: number): Promise<void> {
  const { columns } = await readLayout(client, table);
  const missing = columnsSince(version).filter(({ name }) => !columns.has(name));
  if (missing.length === 0) return;
  const changes = missing.flatMap(({ name }) => addedColumnChanges(name));
  await client.query(`ALTER TABLE ${table.qualified} ${changes.join(", ")}`);
}

/** The user's columns with a name that pg-task needs. One with pg-task's comment is from a migration without record. */
export const foreignColumns = ({ columns: found }: Layout, { version, formerColumns }: TableRecord): string[] =>
  columnsSince(version).flatMap(({ name }) => {
    const column = found.get(name);
    if (column === undefined) return [];
    const isForeign = formerColumns.length > 0 ? formerColumns.includes(name) : column.comment !== comments.get(name);
    return isForeign ? name : [];
  });
