import { readGrantToPause, readGrantToRead, readLackingToCreate } from "../../manager/schema/privilegeRemedy.js";
import { requireNotMoved } from "../../manager/schema/movedTable.js";
import { taskTable, type TaskTable } from "../../manager/schema/taskTable.js";
import type { Configuration, Entry } from "../../shared/config/types.js";
import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import { connectClient, disconnect, type Client } from "../../shared/postgres/client.js";
import { entriesNamed, entryNames, tableNames } from "../../shared/config/entryNames.js";
import { PgTaskError } from "../../shared/errors.js";
import { omitUndefined } from "../../shared/omitUndefined.js";
import { insufficientPrivilege } from "../../shared/postgres/sqlStates.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { indexScanSettings } from "../../tasks/sqlFragments.js";
import { readTableExistence } from "../../tasks/queries/tableExistence.js";
import { resolveConfiguration, unreadVariables } from "./configuration.js";
import { toTaskError } from "../../tasks/taskError.js";
import { withConnection } from "../check/roleAndDatabase.js";
import { describeReleased, readReleased, type ReleasedDatabase } from "../../supervisor/releasedDatabases.js";
import { printableLine } from "../../shared/printable.js";
import { isControlDatabase, releaseOf } from "./released.js";
import { whatIsInTheWay } from "../check/objects.js";
import type { TableOptions } from "./options.js";
import { withTableOptions } from "./pastedCommands.js";
import type { Terminal } from "../terminal/terminal.js";
import { isPasswordRefused } from "../../shared/postgres/connectionErrors.js";
import {
  missingRoleOrDatabaseError,
  readRoleAndDatabase,
  type RoleAndDatabase,
} from "../../supervisor/roleAndDatabase.js";

export interface OpenTable {
  readonly client: Client;
  readonly table: TaskTable;
  readonly entry: Entry;
  readonly configuration: Configuration;
  /** The options that select the table, which the commands in remedies repeat. */
  readonly given: TableOptions;
}

/**
 * Needs the variables with passwords only of the entries that are used, and those with tokens not at all: whoever uses
 * a command need not know all the secrets.
 */
export async function loadForCommand(terminal: Terminal, options: TableOptions): Promise<Configuration> {
  const { cwd, env } = terminal;
  const explained = await resolveConfiguration({
    file: options.config,
    cwd,
    env,
    warn: (message) => terminal.writeError(`pg-task: ${message}\n`),
    lazySecrets: true,
  });
  if (explained !== null) return explained.configuration;
  throw new PgTaskError(
    "CONFIG_MISSING",
    `no server configured: no pg_task.json here, neither DATABASE_URL nor PG* variables set, and no embedded server running in this folder; give --config, or run pg-task start --embedded${unreadVariables(env)}`,
  );
}

/** The options name an entry by its number, key or database, and its table as `table` or `schema.table`. */
export function findEntries({ entries }: Configuration, { entry: wanted, table }: TableOptions): Entry[] {
  return entries
    .filter((entry) => wanted === undefined || entryNames(entries, entry).includes(wanted))
    .filter((entry) => table === undefined || tableNames(entry).includes(table));
}

/**
 * The options that select this entry: the given ones if they do; else its database, table or key, whichever is the
 * first that no other entry has.
 */
export function optionsFor(configuration: Configuration, chosen: Entry, given: TableOptions): TableOptions {
  const isSelected = (options: TableOptions): boolean => {
    const [entry, ...others] = findEntries(configuration, options);
    return entry === chosen && others.length === 0;
  };
  const { target, schema, table, key } = chosen;
  const names = [{ entry: target.database }, { table }, { table: `${schema}.${table}` }, { entry: key }];
  const selecting = isSelected(given) ? given : names.find(isSelected);
  const number = String(configuration.entries.indexOf(chosen) + 1);
  return { ...(selecting ?? { entry: number }), ...(given.config === undefined ? {} : { config: given.config }) };
}

/**
 * Without options, the one that `pg_task.default` names, or the first. If there are others, standard error names it.
 *
 * @throws PgTaskError USAGE unless exactly one entry matches; CONFIG_INVALID if its password is missing
 */
export function chooseEntry(terminal: Terminal, configuration: Configuration, options: TableOptions): Entry {
  const matching = findEntries(configuration, options);
  const [entry] = matching;
  if (entry !== undefined && matching.length === 1) return requirePassword(entry);
  const all = configuration.entries;
  if (options.entry === undefined && options.table === undefined)
    return requirePassword(defaultEntry(terminal, configuration));
  const list = (matching.length === 0 ? all : matching)
    .map((each) => `  ${all.indexOf(each) + 1}  ${each.target.database}  ${each.schema}.${each.table}  ${each.key}`)
    .join("\n");
  const hint = options.unmatchedHint === undefined ? "" : ` (${options.unmatchedHint})`;
  throw new PgTaskError(
    "USAGE",
    matching.length === 0
      ? `no table of the configuration matches --entry and --table${hint}; it has:\n${list}`
      : `expected one table, got ${matching.length}: choose with --entry (number, database or key) or --table:\n${list}`,
  );
}

/** @throws PgTaskError CONFIG_INVALID if the environment variable of its password is not set */
export function requirePassword(entry: Entry): Entry {
  const { missingPassword } = entry;
  if (missingPassword === undefined) return entry;
  throw new PgTaskError("CONFIG_INVALID", missingPassword);
}

function defaultEntry(terminal: Terminal, { entries, parameters }: Configuration): Entry {
  const name = parameters["pg_task.default"];
  const [entry] = name === "" ? entries : entriesNamed(entries, name);
  if (entry === undefined) throw new PgTaskError("INTERNAL", "a configuration without its default entry");
  terminal.writeError(
    `pg-task: using ${entry.schema}.${entry.table} in ${entry.target.database}; --entry or --table choose another table\n`,
  );
  return entry;
}

/** The connection's settings make the format of times and intervals predictable. */
const connectForCommand = (
  target: ConnectionTarget,
  command: string,
  options: { readonly isControl: boolean; readonly signal?: AbortSignal | undefined },
): Promise<Client> =>
  connectClient(target, {
    applicationName: `pg-task ${command}`,
    acceptsAnyText: true,
    // Only doctor looks at what its own session gets from the server.
    acceptsPooler: command !== "doctor",
    settings: { lock_timeout: "5s", ...indexScanSettings },
    ...omitUndefined(options),
  });

export async function withClient<T>(
  target: ConnectionTarget,
  command: string,
  action: (client: Client) => Promise<T>,
  isControl = false,
): Promise<T> {
  const client = await connectForCommand(target, command, { isControl });
  try {
    return await action(client);
  } finally {
    await disconnect(client);
  }
}

/**
 * @param options.signal aborts the attempt to connect, which then fails with CONNECTION_FAILED
 * @throws PgTaskError CONFIG_INVALID if the entry's password is missing; SCHEMA_MOVED or SCHEMA_MISSING if the table
 * does not exist, or has not been adopted yet; any other error as `toTaskError` converts it
 */
export async function withEntry<T>(
  configuration: Configuration,
  entry: Entry,
  command: string,
  action: (opened: OpenTable) => Promise<T>,
  { given = {}, signal }: { readonly given?: TableOptions; readonly signal?: AbortSignal } = {},
): Promise<T> {
  requirePassword(entry);
  const table = taskTable(entry.schema, entry.table);
  // Without entries in the file, the only entry has the control connection's target.
  const isControl = entry.target === configuration.control;
  const client = await connectForCommand(entry.target, command, { isControl, signal }).catch(async (error: unknown) => {
    if (signal?.aborted) throw error;
    throw await explainRefusal(error, configuration, entry);
  });
  try {
    const exists = await readTableExistence(client, table);
    if (exists === "no") await requireNotMoved(client, table);
    if (exists === "no") await requireCreatePrivilege(client, entry, table);
    if (exists !== "yes") throw missingTableError(exists, entry, table, given, await whatIsInTheWay(client, entry));
    return await action({ client, table, entry, configuration, given });
  } catch (error) {
    throw await withGrant(client, table, command, toTaskError(error, table));
  } finally {
    await disconnect(client);
  }
}

async function withGrant(client: Client, table: TaskTable, command: string, error: unknown): Promise<unknown> {
  if (!(error instanceof PgTaskError) || error.sqlState !== insufficientPrivilege || error.message.includes("GRANT ")) {
    return error;
  }
  // In a failed transaction, or over a lost connection, the server's own words remain.
  const pauses = /^(?:pause|resume)$/.test(command) && error.message.includes(`for table ${table.pauseTable} `);
  const grant = await (pauses ? readGrantToPause : readGrantToRead)(client, table).catch(() => null);
  if (grant === null) return error;
  const who = pauses ? "whoever pauses and resumes needs" : "what commands that only look need";
  return new PgTaskError(error.code, `${error.message}; ${who}: ${grant}`, {
    cause: error.cause,
    sqlState: insufficientPrivilege,
    remedy: grant,
  });
}

/** The commands of somebody who may wonder why nothing runs. */
const notesRelease: ReadonlySet<string> = new Set(["list", "why", "wait"]);

/** Says on standard error that nothing starts in the database of an entry. The control database is never released. */
async function noteReleased(terminal: Terminal, configuration: Configuration, entry: Entry): Promise<void> {
  if (isControlDatabase(configuration, entry)) return;
  const read = (client: Client): Promise<readonly ReleasedDatabase[]> => readReleased(client, configuration);
  // Who may use a table need not be allowed to use the control database.
  const released = await withClient(configuration.control, "list", read, true).catch(() => []);
  const found = releaseOf(released, entry);
  if (found !== undefined) terminal.writeError(`pg-task: ${printableLine(describeReleased(found))}\n`);
}

export async function withTable<T>(
  terminal: Terminal,
  options: TableOptions,
  command: string,
  action: (opened: OpenTable) => Promise<T>,
): Promise<T> {
  const configuration = await loadForCommand(terminal, options);
  const entry = chooseEntry(terminal, configuration, options);
  if (notesRelease.has(command)) await noteReleased(terminal, configuration, entry);
  return await withEntry(configuration, entry, command, action, { given: options });
}

/**
 * Otherwise, the error would only recommend `pg-task start`, although a manager may run and wait for this privilege.
 *
 * @throws PgTaskError SCHEMA_NOT_ALLOWED
 */
async function requireCreatePrivilege(
  client: Client,
  { target }: Entry,
  { qualified, schema }: TaskTable,
): Promise<void> {
  const { user, lacking } = await readLackingToCreate(client, { schema });
  if (lacking === null) return;
  throw new PgTaskError(
    "SCHEMA_NOT_ALLOWED",
    `no table ${qualified} in database ${target.database}, and ${user} may not create it: GRANT ${lacking} TO ${identifier(user)}`,
  );
}

function missingTableError(
  why: "no" | "not adopted",
  { target, create }: Entry,
  table: TaskTable,
  given: TableOptions,
  inTheWay: string | null,
): PgTaskError {
  const what =
    why === "no"
      ? `no table ${table.qualified} in database ${target.database}`
      : `table ${table.qualified} in database ${target.database} is not adopted yet`;
  if (create && inTheWay !== null) {
    const then = `then pg-task start ${why === "no" ? "creates" : "adopts"} it`;
    return new PgTaskError("SCHEMA_MISSING", `${what}: ${inTheWay}`, { remedy: `remove what is in the way; ${then}` });
  }
  const start = why === "no" ? "run pg-task start" : "run pg-task start, or if it runs already, see pg-task check";
  return new PgTaskError(
    "SCHEMA_MISSING",
    `${what}: ${withTableOptions("pg-task start creates or adopts it; pg-task check shows what would happen, or what is in the way", given)}`,
    { remedy: create ? start : 'remove "create": false from its entry, and run pg-task start' },
  );
}

/**
 * A server that asks for passwords refuses an unknown role as if the password were wrong, so this asks over the control
 * connection whether role and database exist.
 */
async function explainRefusal(refusal: unknown, { control }: Configuration, entry: Entry): Promise<unknown> {
  if (!(refusal instanceof PgTaskError) || refusal.code !== "CONNECTION_REJECTED" || entry.elsewhere) return refusal;
  // If the control connection fails too, nothing is known. A user of one table may not be allowed to use it.
  let found: RoleAndDatabase;
  try {
    found = await withConnection(control, (client) => readRoleAndDatabase(client, entry.target));
  } catch (failure) {
    if (failure instanceof PgTaskError) return refusal;
    throw failure;
  }
  if (found.role && found.database)
    return setsPassword(entry, found, refusal) ? passwordLater(refusal, entry) : refusal;
  return missingRoleOrDatabaseError(entry, found);
}

const setsPassword = ({ ownPassword, create }: Entry, { isOwnRole }: RoleAndDatabase, error: PgTaskError): boolean =>
  isOwnRole && ownPassword && create && isPasswordRefused(error);

function passwordLater(error: PgTaskError, { target }: Entry): PgTaskError {
  const remedy = "pg-task created the role, and sets the entry's password when it starts or reloads the file";
  return new PgTaskError(
    "CONNECTION_REJECTED",
    `the role ${identifier(target.user)} has another password than its entry: ${remedy}`,
    { cause: error, remedy, sqlState: error.sqlState },
  );
}
