import type { Entry } from "../../shared/config/types.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import { errorMessage, PgTaskError, toReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import { minServerVersion } from "../../shared/postgres/serverLimits.js";
import { identifier } from "../../shared/postgres/quoting.js";
import {
  deadlockDetected,
  insufficientPrivilege,
  isUndefinedObject,
  lockNotAvailable,
} from "../../shared/postgres/sqlStates.js";
import { addedColumns } from "./columns.js";
import { describeMissingColumns } from "./adoption/addColumns.js";
import { adopt } from "./adoption/adopt.js";
import { aloneIndex, ensureIndex, holdIndex, schedulesIndex } from "./adoption/indexes.js";
import { readLayout, type Layout } from "./adoption/layout.js";
import { refuseConflictingNames, refuseObstacles } from "./adoption/obstacles.js";
import { repairAdopted } from "./adoption/triggers.js";
import { nameBoundsCheck } from "./boundsCheck.js";
import { ensureCalendar } from "./calendar.js";
import { duplicateKeysQuery, ensureKeyIndex, keyProblems, type KeyProblem } from "./keyIndex.js";
import { ensureOptions } from "./options/options.sql.js";
import { applyColumnDefaults } from "./columnDefaults.js";
import {
  appliedVersion,
  applyMigration,
  latestVersion,
  missingObjects,
  nameAnotherPlace,
  noRecord,
  readRecord,
  recreateObjects,
  replaceFunctions,
} from "./migrations.js";
import { ensureSchedulesView } from "./schedulesView.sql.js";
import { isHomeSettled, settleHome } from "./home.js";
import { requireNotMoved } from "./movedTable.js";
import { findOrigin, moveObjects } from "./moveObjects.js";
import { readChangeRemedy, readPrivilegeRemedy } from "./privilegeRemedy.js";
import { grantOwedToReaders, readRelations, revokeDefaultGrants } from "./grants.js";
import { readFingerprints, recordFingerprint } from "./fingerprint.sql.js";
import { ensureStateType } from "./stateType.js";
import { ensureUsers, grantRoleNames } from "./users.js";
import { ensureWebhooks } from "./webhooks.js";
import { ensureUserFunctions } from "./functions/ensureUserFunctions.js";
import type { TaskTable } from "./taskTable.js";
import { inTransaction, lockSchema, withLockTimeout } from "./transaction.js";

/** How long to wait until other managers have created their tables in the same schema, in ms. */
const othersTimeoutMs = 30_000;

/**
 * Creates or migrates the schema, the state type, the table and the objects that belong to it, and sets the column
 * defaults. The call can be repeated. It waits only briefly for locks, because producers (clients that insert tasks)
 * queue behind a waiting request.
 *
 * @returns the table's oid.
 * @throws PgTaskError SCHEMA_LOCKED (the caller can try again), SCHEMA_MISSING, SCHEMA_MOVED, SCHEMA_NOT_ALLOWED,
 *   SCHEMA_INCOMPATIBLE, SCHEMA_UNSUPPORTED_SERVER, or CONFIG_INVALID if the server rejects the expression in
 *   `pg_task.plan`.
 */
export async function ensureTable(client: Client, table: TaskTable, entry: Entry, log: Log): Promise<number> {
  await requireServerVersion(client);
  const oidInOrder = await findInOrder(client, table, entry);
  if (oidInOrder !== null) return oidInOrder;
  try {
    const exists = (await schemaExists(client, table)) && (await tableOid(client, table)) !== null;
    if (exists && (await appliedVersion(client, table)) === 0 && !(await followTable(client, table, log))) {
      await adopt(client, table, entry, log);
    }
    const { oid, keyProblem, isNew, taken } = await ensureOwn(client, table, entry, log);
    if (!exists && isNew) log.info({ table: table.logName }, "table created");
    if (keyProblem !== null) await settleKeys(client, table, entry, log, keyProblem);
    for (const index of [holdIndex, aloneIndex]) await withLockTimeout(client, () => ensureIndex(client, table, index));
    const hasAll = !entry.create || (await tryEnsureSchedulesIndex(client, table, log));
    if (hasAll && keyProblem === null && taken.length === 0) await recordInOrder(client, table, entry, log);
    return oid;
  } catch (error) {
    throw await toSchemaError(client, table, error);
  }
}

/** Returns the oid of the table if nothing has changed since it was found in order. */
async function findInOrder(client: Client, table: TaskTable, entry: Entry): Promise<number | null> {
  const [found = null] = await readFingerprints(client, [{ table, entry }]);
  if (found === null || !found.isInOrder || !(await isHomeSettled(client, table, entry))) return null;
  if (found.stateType !== null) table.stateType = found.stateType;
  table.hasKeys = true;
  return found.oid;
}

/** If it cannot be recorded that the table is in order, the next start checks the table again. */
async function recordInOrder(client: Client, table: TaskTable, entry: Entry, log: Log): Promise<void> {
  try {
    await inTransaction(client, async () => {
      await lockSchema(client, table.schema, othersTimeoutMs);
      const [found = null] = await readFingerprints(client, [{ table, entry }]);
      if (found !== null && !found.isInOrder && found.mayRecord) await recordFingerprint(client, table, found);
    });
  } catch (error) {
    if (sqlState(error) === null) throw error;
    log.debug({ table: table.logName, reason: errorMessage(error) }, "not recorded that the table is in order");
  }
}

async function ensureOwn(client: Client, table: TaskTable, entry: Entry, log: Log) {
  const { hasKeys, logName } = table;
  try {
    const done = await inTransaction(client, () => changeOwn(client, table, entry));
    const { from, restored, taken, keyProblem, oid } = done;
    if (done.isMoved) log.info({ table: logName }, "functions replaced, they named another place");
    if (restored.length > 0) log.warn({ table: logName, missing: restored }, "dropped objects created again");
    if (from !== null && from > 0) log.info({ table: logName, from, to: latestVersion }, "table migrated");
    if (from === null && done.defaultsChanged) log.info({ table: logName }, "column defaults changed");
    if (from === null && done.optionsChanged) log.info({ table: logName }, "triggers of optional columns replaced");
    if (done.usersChanged) log.info({ table: logName, roles: table.roleTable }, "tasks run as their users");
    const { changed: webhooks, dropped } = done.webhooks;
    if (webhooks !== null) log.info({ table: logName, webhooks }, "webhooks changed");
    if (dropped > 0) log.warn({ table: logName, dropped }, "webhooks removed, what they were to be told is dropped");
    for (const { purpose, signature } of taken)
      log.warn({ table: logName, function: signature, off: purpose }, "function not created, another one has its name");
    return { oid, keyProblem, isNew: from === 0, taken };
  } catch (error) {
    table.hasKeys = hasKeys;
    throw error;
  }
}

async function changeOwn(client: Client, table: TaskTable, entry: Entry) {
  await lockSchema(client, table.schema, othersTimeoutMs);
  const before = await readRelations(client, table);
  const from = await migrate(client, table, entry);
  const restored = from === null ? await restoreObjects(client, table, entry) : [];
  const isMoved = await nameAnotherPlace(client, table);
  if (isMoved) await replaceFunctions(client, table);
  const layout = await readLayout(client, table);
  requireColumns(table, layout);
  await repairAdopted(client, table, entry, layout);
  const defaultsChanged = await applyColumnDefaults(client, table, entry.parameters);
  await ensureCalendar(client, table, entry);
  const usersChanged = await ensureUsers(client, table, entry);
  const keyProblem = await ensureKeyIndex(client, table, { create: entry.create, concurrently: false });
  table.hasKeys = keyProblem === null;
  const optionsChanged = await ensureOptions(client, table, entry.parameters["pg_task.zone"], keyProblem);
  const isViewReplaced = await ensureSchedulesView(client, table);
  const taken = await ensureUserFunctions(client, table);
  await revokeDefaultGrants(client, table, before);
  if (usersChanged) await grantRoleNames(client, table);
  if (isViewReplaced) await grantOwedToReaders(client, table);
  await settleHome(client, table, entry);
  const webhooks = await ensureWebhooks(client, table, entry);
  const oid = await tableOid(client, table);
  if (oid === null) throw missing(`table ${table.qualified} is missing`);
  return { from, restored, isMoved, defaultsChanged, keyProblem, optionsChanged, usersChanged, taken, webhooks, oid };
}

/** Lets the objects of a table follow it if it was renamed or moved without them. Returns false if it was not. */
async function followTable(client: Client, table: TaskTable, log: Log): Promise<boolean> {
  const origin = await findOrigin(client, table);
  if (origin === null) return false;
  await inTransaction(client, async () => {
    for (const schema of new Set([origin.schema, table.schema].toSorted())) await lockSchema(client, schema);
    await moveObjects(client, origin, table);
    await replaceFunctions(client, table);
  });
  log.info({ table: table.logName, from: origin.logName }, "table was moved, its objects follow it");
  return true;
}

/** Creates the index of keys if only the size of the table was in the way. If it cannot be created, keys stay off. */
async function settleKeys(client: Client, table: TaskTable, entry: Entry, log: Log, found: KeyProblem): Promise<void> {
  let problem: KeyProblem | null = found;
  if (problem === "missing" && entry.create) {
    problem = await withLockTimeout(client, () => ensureKeyIndex(client, table, { create: true, concurrently: true }));
    if (problem === null) ({ keyProblem: problem } = await ensureOwn(client, table, entry, log));
  }
  if (problem === null) return;
  table.hasKeys = false;
  // A partitioned table never has the index, and its documentation says so.
  if (problem === "partitioned") return;
  const remedy =
    problem === "duplicates" ? `end all but one of each key: ${duplicateKeysQuery(table)}` : "restart pg-task";
  log.warn({ table: table.logName, reason: keyProblems[problem], remedy }, "keys off");
}

/**
 * Without the index, schedules are only listed slowly. On a locked table, the manager gives up until its next start.
 * Returns whether the index exists.
 */
async function tryEnsureSchedulesIndex(client: Client, table: TaskTable, log: Log): Promise<boolean> {
  try {
    await withLockTimeout(client, () => ensureIndex(client, table, schedulesIndex));
    return true;
  } catch (error) {
    if (sqlState(error) !== lockNotAvailable && sqlState(error) !== deadlockDetected) throw error;
    log.warn({ table: table.logName }, "index of schedules not created, table is locked");
    return false;
  }
}

async function requireServerVersion(client: Client): Promise<void> {
  const { rows } = await client.query<{ number: number; text: string }>(
    `SELECT current_setting('server_version_num')::integer AS number,
            current_setting('server_version') AS text`,
  );
  if ((rows[0]?.number ?? 0) >= minServerVersion) return;
  throw new PgTaskError("SCHEMA_UNSUPPORTED_SERVER", `expected PostgreSQL 12 or later, got ${rows[0]?.text}`);
}

/** @returns the version before the migration to the latest one, or null if the table was up to date */
async function migrate(client: Client, table: TaskTable, entry: Entry): Promise<number | null> {
  const hasSchema = await schemaExists(client, table);
  const found = hasSchema ? await tableOid(client, table) : null;
  // The version is recorded in a function that survives DROP TABLE. Without a table, this record does not count.
  const record = found === null ? noRecord : await readRecord(client, table);
  const { version } = record;
  if (found !== null && version > latestVersion) throw tooNew(table, version);
  // Another session has created the table since `ensureTable` looked for it.
  if (found !== null && version === 0)
    throw new PgTaskError("SCHEMA_LOCKED", `${table.qualified} is being created by another session`);
  if (version === latestVersion) return null;
  if (found === null) await requireNotMoved(client, table);
  if (!entry.create) throw missing(whatIsMissing(table, hasSchema, version));
  if (!hasSchema) await client.query(`CREATE SCHEMA ${identifier(table.schema)}`);
  // If the table exists, the type of its column `state` exists as well.
  if (version === 0) await ensureStateType(client, table);
  if (found === null) await refuseConflictingNames(client, table);
  else await refuseObstacles(client, table, record);
  await applyMigration(client, table, version);
  await nameBoundsCheck(client, table);
  return version;
}

function requireColumns(table: TaskTable, { columns }: Layout): void {
  const lost = addedColumns.filter((name) => !columns.has(name));
  if (lost.length === 0) return;
  throw new PgTaskError("SCHEMA_INCOMPATIBLE", `cannot use ${table.qualified}: ${describeMissingColumns(lost)}`);
}

/** Recreates dropped objects, and returns their names. */
async function restoreObjects(client: Client, table: TaskTable, entry: Entry): Promise<string[]> {
  const lost = await missingObjects(client, table);
  if (lost.length === 0) return lost;
  if (!entry.create) throw missing(`${lost.join(", ")} of table ${table.qualified} is missing`);
  await refuseConflictingNames(client, table);
  await recreateObjects(client, table, lost);
  return lost;
}

async function schemaExists(client: Client, table: TaskTable): Promise<boolean> {
  const { rowCount } = await client.query("SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1", [table.schema]);
  return rowCount !== 0;
}

export async function tableOid(client: Client, table: TaskTable): Promise<number | null> {
  const { rows } = await client.query<{ oid: number | null }>(
    "SELECT pg_catalog.to_regclass($1)::pg_catalog.oid AS oid",
    [table.qualified],
  );
  return rows[0]?.oid ?? null;
}

function whatIsMissing(table: TaskTable, hasSchema: boolean, version: number): string {
  if (!hasSchema) return `schema ${identifier(table.schema)} is missing`;
  if (version === 0) return `table ${table.qualified} is missing`;
  return `table ${table.qualified} is at version ${version}, not ${latestVersion}`;
}

/** Turns an error of the server into a PgTaskError with a SCHEMA code if one applies. */
async function toSchemaError(client: Client, table: TaskTable, error: unknown): Promise<unknown> {
  const message = errorMessage(error);
  switch (sqlState(error)) {
    case lockNotAvailable:
    case deadlockDetected:
      return new PgTaskError("SCHEMA_LOCKED", `${table.qualified} is locked by another session`, {
        cause: error,
      });
    case insufficientPrivilege:
      return notAllowed(
        `cannot create or change ${table.qualified}: ${message}`,
        error,
        readChangeRemedy(client, table),
      );
    // A name is already taken, or a column is missing or has another type.
    case "42P07":
    case "42710":
    case "42723":
    case "42703":
    case "42804":
      return new PgTaskError("SCHEMA_INCOMPATIBLE", `cannot create or change ${table.qualified}: ${message}`, {
        cause: error,
      });
    default:
      return error;
  }
}

const missing = (what: string): PgTaskError =>
  new PgTaskError("SCHEMA_MISSING", `${what}, and its entry says "create": false`);

const tooNew = (table: TaskTable, version: number): PgTaskError =>
  new PgTaskError(
    "SCHEMA_INCOMPATIBLE",
    `${table.qualified} was created by a later pg-task (version ${version}, this one knows ${latestVersion}): upgrade this pg-task`,
  );

/** Says where a table that was moved while it was served is now, or which privileges are missing. */
export async function explainError(client: Client, table: TaskTable, error: unknown): Promise<unknown> {
  if (error instanceof PgTaskError) return error;
  if (isUndefinedObject(sqlState(error)))
    return await requireNotMoved(client, table).then(
      () => error,
      (reason: unknown) => (reason instanceof PgTaskError ? reason : error),
    );
  if (sqlState(error) !== insufficientPrivilege) return error;
  const what = `${toReport(error).message}: the entry's user needs the privileges of the owner of ${table.qualified}`;
  return await notAllowed(what, error, readPrivilegeRemedy(client, table));
}

async function notAllowed(what: string, cause: unknown, finding: Promise<string | null>): Promise<PgTaskError> {
  const remedy = await finding.catch(() => null);
  if (remedy === null) return new PgTaskError("SCHEMA_NOT_ALLOWED", what, { cause });
  return new PgTaskError("SCHEMA_NOT_ALLOWED", `${what}: ${remedy}`, { cause, remedy });
}
