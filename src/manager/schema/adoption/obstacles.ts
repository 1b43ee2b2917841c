import type { Client } from "../../../shared/postgres/client.js";
import { PgTaskError } from "../../../shared/errors.js";
import { identifier } from "../../../shared/postgres/quoting.js";
import type { TaskTable } from "../taskTable.js";
import { expectedColumns, requiredColumns, isPgTaskHash } from "./addColumns.js";
import { forbiddenStates } from "./stateChecks.js";
import { readLayout, type FoundColumn, type Layout } from "./layout.js";
import { foreignColumns, type TableRecord } from "../columns.js";
import { latestVersion, noRecord, ownComment } from "../migrations.js";

/** A reason why a table cannot be adopted or migrated, and the statement that removes this reason. */
interface Obstacle {
  readonly problem: string;
  readonly statement: string;
}

/**
 * @throws PgTaskError SCHEMA_INCOMPATIBLE with the statements that would make the table fit, or with a name that is
 *   taken
 */
export async function refuseObstacles(client: Client, table: TaskTable, record: TableRecord): Promise<void> {
  if (record.version < latestVersion) {
    const layout = await readLayout(client, table);
    if (record.version === 0) await refuseAdoption(client, table, layout);
    else refuse(`cannot migrate ${table.qualified}`, foreignNames(table, layout, record));
  }
  await refuseConflictingNames(client, table);
}

async function refuseAdoption(client: Client, table: TaskTable, layout: Layout): Promise<void> {
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
  refuse(foreign, [
    ...missingRequired(table, layout),
    ...unfitTypes(table, layout),
    ...extensionTriggers(table, layout),
    ...(await ownColumnsInUse(client, table, layout)),
    ...foreignNames(table, layout, noRecord),
    ...(await forbiddingChecks(client, table, layout)),
  ]);
}

function refuse(reason: string, obstacles: readonly Obstacle[]): void {
  if (obstacles.length === 0) return;
  throw refusal(
    `${reason}: ${obstacles.map(({ problem }) => problem).join("; ")}`,
    obstacles.map(({ statement }) => statement),
  );
}

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
 * In a table with a column `user`, the pg_task extension runs each task as the role that inserted it, and its triggers
 * forbid state changes that pg-task makes. Only the owner can decide that all tasks are to run as one user instead.
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

export const describeKind = (kind: string): string => kindDescriptions.get(kind) ?? "another relation";

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

/** @throws PgTaskError SCHEMA_INCOMPATIBLE if a function or relation of another origin has a name that pg-task needs */
export async function refuseConflictingNames(client: Client, table: TaskTable): Promise<void> {
  const taken = (await findForeignFunction(client, table)) ?? (await findForeignRelation(client, table));
  if (taken === null) return;
  throw new PgTaskError(
    "SCHEMA_INCOMPATIBLE",
    `cannot create or change ${table.qualified}: ${taken} exists and was not created by pg-task: rename it, or give another "schema" or "table"`,
  );
}

/** The pg_task extension's wake-up function does not count: ours replaces it, and the extension creates it again. */
async function findForeignFunction(client: Client, table: TaskTable): Promise<string | null> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT pg_catalog.concat('the function ', p.oid::pg_catalog.regprocedure) AS name
     FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
     WHERE n.nspname = $1
       AND (p.proname = ANY ($2::text[]) AND p.pronargs = 0
         OR p.oid = ANY (SELECT pg_catalog.to_regprocedure(signature) FROM unnest($5::text[]) AS signature))
       AND NOT starts_with(COALESCE(pg_catalog.obj_description(p.oid, 'pg_proc'), ''), $3)
       AND NOT (p.proname = $4 AND p.prorettype = 'trigger'::pg_catalog.regtype
         AND p.prosrc LIKE '%pg_cancel_backend%' AND p.prosrc LIKE '%pg_locks%')`,
    [
      table.schema,
      [
        table.readyFunction,
        table.wakeUp,
        table.fill,
        table.homeChanged,
        table.reset,
        table.statsRows,
        table.errorsRows,
        table.groupsRows,
        table.schedulesRows,
      ],
      ownComment,
      table.wakeUp,
      [
        `${table.qualifiedFinish}(bigint, bigint, text, integer)`,
        `${table.qualifiedReset}(text, text, text, integer, integer)`,
        `${table.qualifiedPlanned}(text)`,
      ],
    ],
  );
  return rows[0]?.name ?? null;
}

/**
 * A side table may remain from a dropped task table: it is recognized by its columns, and one that a user could have as
 * well by its comment. Names of indexes matter only while the task table does not exist.
 */
async function findForeignRelation(client: Client, table: TaskTable): Promise<string | null> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT pg_catalog.format('the relation %I.%I', n.nspname, c.relname) AS name
     FROM (SELECT $2::text, ARRAY['group', 'since', 'reason'] UNION ALL
       SELECT unnest($3::text[]), ARRAY['id', 'take', 'running', 'start', 'stop', 'place'] UNION ALL
       SELECT $6, ARRAY['id', 'system', 'database', 'table', 'version', 'cluster', 'label', 'since'] UNION ALL
       SELECT $7, ARRAY['predecessor', 'task', 'failed'] UNION ALL SELECT $8, ARRAY['task'] UNION ALL
       SELECT $9, ARRAY['hash', 'failures'] UNION ALL
       SELECT $10, ARRAY['name', 'states', 'groups', 'failures', 'next', 'error', 'failed'] UNION ALL
       SELECT $11, ARRAY['id', 'webhook', 'task', 'state', 'tries', 'next'] UNION ALL
       SELECT $12, ARRAY['turn', 'group', 'begun'] UNION ALL
       SELECT unnest($4::text[]), NULL WHERE pg_catalog.to_regclass($5) IS NULL) AS w(name, columns)
     JOIN pg_catalog.pg_namespace AS n ON n.nspname = $1
     JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = w.name
     WHERE w.columns IS NULL OR c.relkind NOT IN ('r', 'p') OR NOT w.columns <@ ARRAY(
       SELECT a.attname::text FROM pg_catalog.pg_attribute AS a
       WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
       OR w.name = ANY (ARRAY[$7, $8, $9, $10, $11, $12]) AND concat(pg_catalog.obj_description(c.oid, 'pg_class')) NOT LIKE 'For pg-task''s own use%'
     ORDER BY 1 LIMIT 1`,
    [
      table.schema,
      table.pauseTable,
      [table.ledger1, table.ledger2],
      [table.dueIndex, table.planIndex, table.keepIndex, table.schedulesIndex, table.keyIndex],
      table.qualified,
      table.homeTable,
      table.dependencyTable,
      table.owedTable,
      table.failureTable,
      table.webhookTable,
      table.outboxTable,
      table.turnTable,
    ],
  );
  return rows[0]?.name ?? null;
}
