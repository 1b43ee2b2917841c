import type { Client } from "../../../shared/postgres/client.js";
import { PgTaskError } from "../../../shared/errors.js";
import { identifier } from "../../../shared/postgres/quoting.js";
import type { TaskTable } from "../taskTable.js";
import { expectedColumns, requiredColumns, isPgTaskHash } from "./expectedColumns.js";
import { forbiddenStates } from "./stateChecks.js";
import type { FoundColumn, Layout } from "./layout.js";
import { foreignColumns, type TableRecord } from "../columns.js";
import { noRecord } from "../migrations.js";

/** A reason why a table cannot be adopted or migrated, and the statement that removes this reason. */
interface Obstacle {
  readonly problem: string;
  readonly statement: string;
}

/**
 * Checks that nothing keeps the table from being adopted.
 *
 * @throws PgTaskError SCHEMA_INCOMPATIBLE with the statements that would make the table fit.
 */
export async function refuseObstacles(client: Client, table: TaskTable, layout: Layout): Promise<void> {
  const { qualified } = table;
  const foreign = `${qualified} exists and was not created by pg-task`;
  if (layout.kind !== "r" && layout.kind !== "p") {
    throw new PgTaskError(
      "SCHEMA_INCOMPATIBLE",
      `${foreign}; expected a table, got ${describeKind(layout.kind)}: give another "schema" or "table"`,
    );
  }
  if (isLegacyLayout(layout)) {
    throw refusal(`${qualified} has the layout of pg_task's first version`, legacyLayoutStatements(qualified));
  }
  const obstacles = [
    ...missingRequired(table, layout),
    ...unfitTypes(table, layout),
    ...extensionTriggers(table, layout),
    ...(await ownColumnsInUse(client, table, layout)),
    ...foreignNames(table, layout, noRecord),
    ...(await forbiddingChecks(client, table, layout)),
  ];
  if (obstacles.length === 0) return;
  throw refusal(
    `${foreign}: ${obstacles.map(({ problem }) => problem).join("; ")}`,
    obstacles.map(({ statement }) => statement),
  );
}

/**
 * Checks that no column of the user has the name of a column that a migration adds.
 *
 * @throws PgTaskError SCHEMA_INCOMPATIBLE with the statements that rename these columns.
 */
export function refuseForeignColumns(table: TaskTable, layout: Layout, record: TableRecord): void {
  const obstacles = foreignNames(table, layout, record);
  if (obstacles.length === 0) return;
  throw refusal(
    `cannot migrate ${table.qualified}: ${obstacles.map(({ problem }) => problem).join("; ")}`,
    obstacles.map(({ statement }) => statement),
  );
}

/** Returns the columns of the user that have the name of a column that a migration adds. */
export const foreignNames = ({ qualified }: TaskTable, layout: Layout, record: TableRecord): Obstacle[] =>
  foreignColumns(layout, record).map((name) => ({
    problem: `its column ${name} has the name of one of pg-task's columns`,
    statement: renameStatement(qualified, name),
  }));

function refusal(reason: string, statements: readonly string[]): PgTaskError {
  return new PgTaskError(
    "SCHEMA_INCOMPATIBLE",
    `${reason}: give another "schema" or "table", or make it fit:\n${statements.map((each) => `${each};`).join("\n")}`,
  );
}

function missingRequired({ qualified }: TaskTable, { columns }: Layout): Obstacle[] {
  const types: Readonly<Record<string, string>> = {
    id: "bigserial PRIMARY KEY",
    plan: "timestamptz NOT NULL DEFAULT statement_timestamp()",
    state: "text NOT NULL DEFAULT 'PLAN'",
    input: "text NOT NULL DEFAULT ''",
  };
  return requiredColumns
    .filter((name) => !columns.has(name))
    .map((name) => ({
      problem: `it has no column ${name}`,
      statement: `ALTER TABLE ${qualified} ADD COLUMN ${name} ${types[name]}`,
    }));
}

function unfitTypes({ qualified }: TaskTable, { columns }: Layout): Obstacle[] {
  return expectedColumns.flatMap(({ name, type, fits }) => {
    const found = columns.get(name);
    if (found === undefined || (fits(found) && (name !== "hash" || hashFits(found)))) return [];
    const quoted = identifier(name);
    const problem = `its column ${name} is ${found.type}${found.generated === null ? "" : ` generated from ${found.generated}`}, not ${type}`;
    const statement =
      name === "hash" || name === "ready"
        ? renameStatement(qualified, name)
        : `ALTER TABLE ${qualified} ALTER COLUMN ${quoted} TYPE ${type} USING ${quoted}::text::${type}`;
    return [{ problem, statement }];
  });
}

const hashFits = ({ generated }: FoundColumn): boolean => generated === null || isPgTaskHash(generated);

const renameStatement = (qualified: string, column: string): string =>
  `ALTER TABLE ${qualified} RENAME COLUMN ${column} TO ${column}_before`;

/**
 * Returns triggers of the pg_task extension that keep the table from being adopted. In a table with a column `user`,
 * the extension runs each task as the role that inserted it. The extension's triggers also forbid state changes that
 * pg-task makes (see the README of the extension). Only the table's owner can decide that all tasks are to run as one
 * user instead.
 */
function extensionTriggers({ qualified, table }: TaskTable, layout: Layout): Obstacle[] {
  if (layout.columns.get("user")?.base !== "name") return [];
  const effects = {
    [`${table}_user`]: "makes each task run as the role in its column user, which pg-task does not",
    [`${table}_state`]: "forbids the step from PLAN to WORK",
  };
  return Object.entries(effects)
    .filter(([name]) => layout.triggers.includes(name))
    .map(([name, effect]) => ({
      problem: `its trigger ${name} ${effect}`,
      statement: `ALTER TABLE ${qualified} DISABLE TRIGGER ${identifier(name)}`,
    }));
}

/** Returns columns named `ready` or `owner` that pg-task did not create and that hold values. */
async function ownColumnsInUse(client: Client, table: TaskTable, layout: Layout): Promise<Obstacle[]> {
  const obstacles: Obstacle[] = [];
  for (const name of ["ready", "owner"]) {
    const found = layout.columns.get(name);
    if (found === undefined || found.comment?.startsWith("For pg-task's own use") === true) continue;
    const { rowCount } = await client.query(`SELECT FROM ${table.qualified} WHERE ${name} IS NOT NULL LIMIT 1`);
    if (rowCount === 0) continue;
    obstacles.push({
      problem: `its column ${name} holds values that pg-task did not write`,
      statement: renameStatement(table.qualified, name),
    });
  }
  return obstacles;
}

/** Returns the user's check constraints that forbid a state which every task may need. */
async function forbiddingChecks(client: Client, table: TaskTable, layout: Layout): Promise<Obstacle[]> {
  const found = await forbiddenStates(client, table, layout);
  return found.map(({ check, domain, states, statement }) => ({
    problem: `${domain === null ? "its" : `its column state has the domain ${domain}, whose`} constraint ${check} forbids the state${states.length === 1 ? "" : "s"} ${states.join(", ")}`,
    statement,
  }));
}

const kindDescriptions: ReadonlyMap<string, string> = new Map([
  ["v", "a view"],
  ["m", "a materialized view"],
  ["f", "a foreign table"],
  ["i", "an index"],
  ["I", "an index"],
  ["S", "a sequence"],
  ["c", "a composite type"],
  ["t", "a TOAST table"],
]);

/**
 * Describes a relation that is not a table.
 *
 * @param kind the kind of relation, as in `pg_class.relkind`
 */
export const describeKind = (kind: string): string => kindDescriptions.get(kind) ?? "another relation";

/** Column names in the first version of the pg_task extension, each with its current name. */
const legacyNames = [
  ["dt", "plan"],
  ["queue", '"group"'],
  ["request", "input"],
  ["response", "output"],
] as const;

function isLegacyLayout({ columns }: Layout): boolean {
  return legacyNames.every(([before, now]) => columns.has(before) && !columns.has(now.replaceAll('"', "")));
}

function legacyLayoutStatements(qualified: string): string[] {
  return [
    ...legacyNames.map(([before, now]) => `ALTER TABLE ${qualified} RENAME COLUMN ${before} TO ${now}`),
    `ALTER TABLE ${qualified} ALTER COLUMN state SET DEFAULT 'PLAN'`,
    `UPDATE ${qualified} SET state = 'PLAN' WHERE state IN ('QUEUE', 'ASSIGN')`,
  ];
}
