import type { Entry } from "../../shared/config/types.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import { PgTaskError } from "../../shared/errors.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";
import type { Log } from "../../shared/log.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { adopt } from "./adoption/adopt.js";
import { refuseConflictingColumns } from "./adoption/conflictingColumns.js";
import { repairAdopted } from "./adoption/repairAdopted.js";
import { applyColumnDefaults } from "./columnDefaults.js";
import { prepareKeep } from "./keepColumn.js";
import {
  appliedVersion,
  applyMigrations,
  latestVersion,
  missingObjects,
  remakeObjects,
} from "./migrations.js";
import { ensureStateType } from "./stateType.js";
import type { TaskTable } from "./taskTable.js";

const oldestServer = 120_000;

/** How long a change of the table may wait for a lock that producers hold up behind it, in ms. */
const lockTimeoutMs = 500;
/** How long other managers may take to make their tables, which nobody else waits for, in ms. */
const othersTimeoutMs = 30_000;

/**
 * Makes what is missing of schema, type, table, indexes, triggers and defaults. Safe to repeat, and
 * while producers insert: it waits for a lock only briefly and gives up rather than queue them up.
 *
 * @returns the table's oid.
 * @throws PgTaskError SCHEMA_LOCKED (try again), SCHEMA_MISSING, SCHEMA_NOT_ALLOWED,
 * SCHEMA_INCOMPATIBLE, SCHEMA_UNSUPPORTED_SERVER, or CONFIG_INVALID when the server does not
 * understand `pg_task.plan`.
 */
export async function ensureTable(
  client: Client,
  table: TaskTable,
  entry: Entry,
  log: Log,
): Promise<number> {
  await requireServerVersion(client);
  try {
    if (await isForeign(client, table)) {
      await adopt(client, table, entry, { lockTimeoutMs, log });
    }
    if (entry.create && (await isAtFirst(client, table))) {
      await prepareKeep(client, table, lockTimeoutMs);
    }
    return await ensureOwn(client, table, entry, log);
  } catch (error) {
    throw explain(error, table);
  }
}

/** Whether there is a table that no migration has been applied to, by this pg-task or a later one. */
async function isForeign(client: Client, table: TaskTable): Promise<boolean> {
  return (
    (await schemaExists(client, table)) &&
    (await tableOid(client, table)) !== null &&
    (await appliedVersion(client, table)) === 0
  );
}

/** Whether it has rows, perhaps many, that the second migration has not seen. */
async function isAtFirst(client: Client, table: TaskTable): Promise<boolean> {
  return (await appliedVersion(client, table)) === 1 && (await tableOid(client, table)) !== null;
}

async function ensureOwn(
  client: Client,
  table: TaskTable,
  entry: Entry,
  log: Log,
): Promise<number> {
  await client.query("BEGIN");
  try {
    await client.query(`SET LOCAL lock_timeout = ${othersTimeoutMs}`);
    // Tables of one schema share its type, so their managers make them one after another.
    await client.query("SELECT pg_advisory_xact_lock($1, hashtext($2))", [
      lockClasses.migration,
      table.schema,
    ]);
    await client.query(`SET LOCAL lock_timeout = ${lockTimeoutMs}`);
    const from = await migrate(client, table, entry);
    const remade = from === null ? await remake(client, table, entry) : [];
    await repairAdopted(client, table, entry);
    const defaultsChanged = await applyColumnDefaults(client, table, entry.parameters);
    const oid = await tableOid(client, table);
    if (oid === null) throw missing(`table ${table.qualified} is missing`);
    await client.query("COMMIT");
    if (remade.length > 0)
      log.warn({ table: table.qualified, missing: remade }, "what was dropped is made again");
    if (from !== null)
      log.info({ table: table.qualified, from, to: latestVersion }, "table migrated");
    else if (defaultsChanged) log.info({ table: table.qualified }, "column defaults changed");
    return oid;
  } catch (error) {
    await client.query("ROLLBACK").catch(() => {});
    throw error;
  }
}

async function requireServerVersion(client: Client): Promise<void> {
  const { rows } = await client.query<{ number: number; text: string }>(
    `SELECT current_setting('server_version_num')::integer AS number,
            current_setting('server_version') AS text`,
  );
  if ((rows[0]?.number ?? 0) >= oldestServer) return;
  throw new PgTaskError(
    "SCHEMA_UNSUPPORTED_SERVER",
    `expected PostgreSQL 12 or later, got ${rows[0]?.text}`,
  );
}

/** The version that it was at, null when it was up to date. */
async function migrate(client: Client, table: TaskTable, entry: Entry): Promise<number | null> {
  const hasSchema = await schemaExists(client, table);
  const found = hasSchema ? await tableOid(client, table) : null;
  // What is left of a table that was dropped says nothing about the one to come.
  const version = found === null ? 0 : await appliedVersion(client, table);
  if (found !== null && version > latestVersion) throw newerThanThis(table, version);
  if (found !== null && version === 0) throw appeared(table);
  if (version === latestVersion) return null;
  if (!entry.create) throw missing(whatIsMissing(table, hasSchema, version));
  if (!hasSchema) await client.query(`CREATE SCHEMA ${identifier(table.schema)}`);
  // A table that is there has what its column state is of.
  if (version === 0) await ensureStateType(client, table);
  await refuseConflictingColumns(client, table);
  await applyMigrations(client, table, version);
  return version;
}

/** Makes again what somebody has dropped; its names. */
async function remake(client: Client, table: TaskTable, entry: Entry): Promise<string[]> {
  const lost = await missingObjects(client, table);
  if (lost.length === 0) return lost;
  if (!entry.create) throw missing(`${lost.join(", ")} of table ${table.qualified} is missing`);
  await refuseConflictingColumns(client, table);
  await remakeObjects(client, table, lost);
  return lost;
}

async function schemaExists(client: Client, table: TaskTable): Promise<boolean> {
  const { rowCount } = await client.query(
    "SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1",
    [table.schema],
  );
  return rowCount !== 0;
}

async function tableOid(client: Client, table: TaskTable): Promise<number | null> {
  const { rows } = await client.query<{ oid: number | null }>(
    "SELECT pg_catalog.to_regclass($1)::pg_catalog.oid AS oid",
    [table.qualified],
  );
  return rows[0]?.oid ?? null;
}

function whatIsMissing(table: TaskTable, hasSchema: boolean, version: number): string {
  if (!hasSchema) return `schema ${identifier(table.schema)} is missing`;
  if (version === 0) return `table ${table.qualified} is missing`;
  return `table ${table.qualified} is at migration ${version}, not ${latestVersion}`;
}

/** What the server has against making or changing the table, in its own words. */
function explain(error: unknown, table: TaskTable): unknown {
  const words = error instanceof Error ? error.message : String(error);
  switch (sqlState(error)) {
    case "55P03":
    case "40P01":
      return new PgTaskError("SCHEMA_LOCKED", `${table.qualified} is locked by somebody`, {
        cause: error,
      });
    case "42501":
      return new PgTaskError("SCHEMA_NOT_ALLOWED", `cannot make ${table.qualified}: ${words}`, {
        cause: error,
      });
    // A name is taken, or a column is gone or of another type.
    case "42P07":
    case "42710":
    case "42723":
    case "42703":
    case "42804":
      return new PgTaskError("SCHEMA_INCOMPATIBLE", `cannot make ${table.qualified}: ${words}`, {
        cause: error,
      });
    default:
      return error;
  }
}

const missing = (what: string): PgTaskError =>
  new PgTaskError("SCHEMA_MISSING", `${what}, and its entry says "create": false`);

const newerThanThis = (table: TaskTable, version: number): PgTaskError =>
  new PgTaskError(
    "SCHEMA_INCOMPATIBLE",
    `${table.qualified} was made by a later pg-task (migration ${version}, this one knows ${latestVersion}): upgrade this pg-task`,
  );

/** Made by somebody between two looks. */
const appeared = (table: TaskTable): PgTaskError =>
  new PgTaskError("SCHEMA_LOCKED", `${table.qualified} is just being made by somebody`);
