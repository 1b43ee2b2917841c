import { taskTable, type TaskTable } from "../../manager/schema/taskTable.js";
import type { Configuration, ConnectionTarget, Entry } from "../../shared/config/types.js";
import { connectClient, disconnect, type Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { readingSettings } from "../../tasks/connectionSettings.js";
import { tableExists } from "../../tasks/queries/tableExists.js";
import { explainHere } from "./explainServerFailure.js";
import { explainFailure } from "./explainFailure.js";

/** Options by which every command finds its table. */
export interface TableOptions {
  readonly config?: string;
  readonly entry?: string;
  readonly table?: string;
}

/** A connection to an entry's database, and the table's names. */
export interface OpenTable {
  readonly client: Client;
  readonly table: TaskTable;
  readonly entry: Entry;
  readonly configuration: Configuration;
}

const warn = (message: string): void => void process.stderr.write(`pg-task: ${message}\n`);

/**
 * The configuration as `start` would read it.
 *
 * @throws PgTaskError of the family CONFIG; CONFIG_MISSING when nothing says which server.
 */
export async function loadForCommand(options: TableOptions): Promise<Configuration> {
  const explained = await explainHere({
    file: options.config,
    cwd: process.cwd(),
    env: process.env,
    warn,
  });
  if (explained !== null) return explained.configuration;
  throw new PgTaskError(
    "CONFIG_MISSING",
    "expected to be told which server: there is no pg_task.json here, neither DATABASE_URL nor PG* variables are set, and no embedded server runs for this folder; give --config, or start one with pg-task start",
  );
}

/** The entries that the options allow: by number, key, database or schema.table. */
export function matchingEntries(
  { entries }: Configuration,
  { entry: wanted, table }: TableOptions,
): Entry[] {
  return entries
    .filter(
      ({ key, target }, index) =>
        wanted === undefined || [key, target.database, String(index + 1)].includes(wanted),
    )
    .filter(
      (each) => table === undefined || [each.table, `${each.schema}.${each.table}`].includes(table),
    );
}

/** @throws PgTaskError USAGE unless exactly one entry is meant. */
export function chooseEntry(configuration: Configuration, options: TableOptions): Entry {
  const matching = matchingEntries(configuration, options);
  const [entry] = matching;
  if (entry !== undefined && matching.length === 1) return entry;
  const all = configuration.entries;
  const list = (matching.length === 0 ? all : matching)
    .map(
      (each) =>
        `  ${all.indexOf(each) + 1}  ${each.target.database}  ${each.schema}.${each.table}  ${each.key}`,
    )
    .join("\n");
  throw new PgTaskError(
    "USAGE",
    matching.length === 0
      ? `expected --entry and --table to name a table of the configuration, which has:\n${list}`
      : `expected one table, got ${matching.length}: choose by --entry (its number, database or key) or --table:\n${list}`,
  );
}

/** Connects as a command of pg-task's; times and intervals come in forms that do not depend on settings. */
export async function connectFor(target: ConnectionTarget, command: string): Promise<Client> {
  return await connectClient(target, {
    applicationName: `pg-task ${command}`,
    settings: {
      lock_timeout: "5s",
      ...readingSettings,
    },
  });
}

/**
 * Runs something on an entry's table and ends the connection.
 *
 * @throws PgTaskError SCHEMA_MISSING when the table is not there or not adopted yet; a failure of a
 * statement as explainFailure has it.
 */
export async function onEntry<T>(
  configuration: Configuration,
  entry: Entry,
  command: string,
  work: (opened: OpenTable) => Promise<T>,
): Promise<T> {
  const table = taskTable(entry.schema, entry.table);
  const client = await connectFor(entry.target, command);
  try {
    const there = await tableExists(client, table);
    if (there === "no") await requireRightToMake(client, entry, table);
    if (there !== "yes") throw notThere(there, entry, table);
    return await work({ client, table, entry, configuration });
  } catch (error) {
    throw explainFailure(error, table);
  } finally {
    await disconnect(client);
  }
}

/** The one table that the options mean. */
export async function onTable<T>(
  options: TableOptions,
  command: string,
  work: (opened: OpenTable) => Promise<T>,
): Promise<T> {
  const configuration = await loadForCommand(options);
  return await onEntry(configuration, chooseEntry(configuration, options), command, work);
}

/**
 * A manager that lacks it may well run, and wait for it.
 *
 * @throws PgTaskError SCHEMA_NOT_ALLOWED
 */
async function requireRightToMake(
  client: Client,
  { target }: Entry,
  { qualified, schema }: TaskTable,
): Promise<void> {
  const { rows } = await client.query<{ lacking: string | null; user: string }>(
    `SELECT current_user::text AS "user", CASE
       WHEN n.oid IS NULL AND NOT has_database_privilege(current_database(), 'CREATE') THEN format('DATABASE %I', current_database())
       WHEN n.oid IS NOT NULL AND NOT has_schema_privilege(n.oid, 'CREATE') THEN format('SCHEMA %I', n.nspname)
       END AS lacking
     FROM (SELECT $1::text AS name) AS s LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = s.name`,
    [schema],
  );
  const { lacking = null, user = "" } = rows[0] ?? {};
  if (lacking === null) return;
  throw new PgTaskError(
    "SCHEMA_NOT_ALLOWED",
    `there is no table ${qualified} in the database ${target.database}, and ${user} may not make it: GRANT CREATE ON ${lacking} TO ${identifier(user)}`,
  );
}

function notThere(why: "no" | "not adopted", { target }: Entry, table: TaskTable): PgTaskError {
  const what =
    why === "no"
      ? `there is no table ${table.qualified} in the database ${target.database}`
      : `the table ${table.qualified} in the database ${target.database} is not pg-task's yet`;
  return new PgTaskError(
    "SCHEMA_MISSING",
    `${what}: pg-task start makes it ready; pg-task check says what it would do`,
  );
}
