import type { FileParameters } from "../../../shared/config/parameterTable.js";
import type { Client } from "../../../shared/postgres/client.js";
import { identifier } from "../../../shared/postgres/quoting.js";
import { addedColumnChanges, addedColumns, columnComments, hashDefinition } from "../columns.js";
import { parameterColumns, parameterDefault } from "../columnDefaults.js";
import { columnList, type ColumnName, type TaskColumn } from "../../../shared/taskColumns.js";
import { objectName, type TaskTable } from "../taskTable.js";
import type { FoundColumn, Layout } from "./layout.js";

export interface ExpectedColumn {
  readonly name: ColumnName;
  readonly type: string;
  /** Its type may differ from `type`, because assignments and comparisons convert implicitly. */
  readonly fits: (found: FoundColumn) => boolean;
  readonly check: string | undefined;
}

const hasBase =
  (...types: readonly string[]) =>
  ({ base }: FoundColumn): boolean =>
    types.includes(base);

const anyInteger = hasBase("int2", "int4", "int8");
const text = ({ base, category }: FoundColumn): boolean => category === "S" && base !== "char" && base !== "name";
const unlimitedText = (found: FoundColumn): boolean => text(found) && found.maxLength === null;
const maxStateLength = 4;
const state = (found: FoundColumn): boolean =>
  found.kind === "e" || (text(found) && (found.maxLength ?? maxStateLength) >= maxStateLength);

const fitting: Readonly<Partial<Record<TaskColumn["type"], ExpectedColumn["fits"]>>> = {
  bigint: anyInteger,
  integer: anyInteger,
  "timestamp with time zone": hasBase("timestamptz", "timestamp", "date"),
  interval: hasBase("interval"),
  boolean: hasBase("bool"),
  '"char"': (found) => found.base === "char" || text(found),
  text,
  state,
};

/** Columns of which less, or more, is expected than their type says. */
const exceptions: Readonly<Partial<Record<ColumnName, ExpectedColumn["fits"]>>> = {
  pid: hasBase("int4", "int8"),
  hash: hasBase("int4"),
  data: () => true,
  error: unlimitedText,
  output: unlimitedText,
  owner: unlimitedText,
};

const checkOf = ({ name, type, bounds }: TaskColumn & { readonly name: string }): string | undefined => {
  if (bounds === undefined) return undefined;
  if (bounds === "ASCII") return `${name} <= E'\\x7f'`;
  return `${name} ${bounds === "above 0" ? ">" : ">="} ${type === "interval" ? "interval '0'" : "0"}`;
};

/** The columns of the first version. Adoption never adds `state`, whose type is only for messages. */
export const expectedColumns: readonly ExpectedColumn[] = columnList
  .filter(({ since }) => since === 1)
  .map((column) => ({
    name: column.name,
    type: column.type === "state" ? "text" : column.type,
    fits: exceptions[column.name] ?? fitting[column.type] ?? (() => false),
    check: checkOf(column),
  }));

/** Columns without which a table is not adopted, because no default would suit the table's existing rows. */
export const requiredColumns: readonly ColumnName[] = ["id", "plan", "state", "input"];

export function isPgTaskHash(generated: string): boolean {
  const bare = generated.replaceAll(/[()\s]|::(?:text|character varying)/g, "");
  return bare === `hashtext"group"||COALESCEremote,''`;
}

export function missingColumns({ columns }: Layout): ExpectedColumn[] {
  return expectedColumns.filter(({ name }) => !columns.has(name));
}

export const missingColumnNames = (layout: Layout): ColumnName[] => [
  ...missingColumns(layout).map(({ name }) => name),
  ...addedColumns.filter((name) => !layout.columns.has(name)),
];

export const describeMissingColumns = (names: readonly string[]): string =>
  `it no longer has the column${names.length === 1 ? "" : "s"} ${names.join(", ")}`;

/** Rewrites no rows. Existing ones get the default of each new column, but stay out of the queue (`ready` is null). */
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
