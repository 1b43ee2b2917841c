import type { Entry } from "../shared/config/types.js";
import { sqlState, type Client } from "../shared/database.js";
import { PgTaskError } from "../shared/errors.js";
import { lockClasses } from "../shared/locks.js";
import type { Log } from "../shared/log.js";
import { identifier } from "../shared/sqlText.js";
import { applyColumnDefaults } from "./columnDefaults.js";
import { appliedVersion, applyMigrations, latestVersion } from "./migrations.js";
import type { TaskTable } from "./table.js";

const oldestServer = 120_000;

/** How long a change of the table may wait for a lock that holds producers up behind it, in ms. */
const lockTimeoutMs = 500;
/** How long other managers may take to make their tables, which nobody else waits for, in ms. */
const othersTimeoutMs = 30_000;

/**
 * Makes what is missing of schema, type, table, indexes, triggers and defaults. Safe to repeat, and
 * while producers insert: it waits for a lock only briefly and gives up rather than queue them up.
 *
 * @returns the table's oid.
 * @throws PgTaskError SCHEMA_LOCKED (try again), SCHEMA_MISSING, SCHEMA_NOT_ALLOWED,
 * SCHEMA_INCOMPATIBLE or SCHEMA_UNSUPPORTED_SERVER.
 */
export async function ensureTable(
  client: Client,
  table: TaskTable,
  entry: Entry,
  log: Log,
): Promise<number> {
  await requireServerVersion(client);
  const found = await tableOid(client, table);
  const version = found === null ? 0 : await appliedVersion(client, table);
  if (found !== null && version > latestVersion) throw newerThanThis(table, version);
  if (found !== null && version === 0) throw notOurs(table);
  if (!entry.create && version < latestVersion) throw missing(table);
  await client.query("BEGIN");
  try {
    await client.query(`SET LOCAL lock_timeout = ${othersTimeoutMs}`);
    if (version < latestVersion) await lockMigration(client, identifier(table.schema));
    await lockMigration(client, table.qualified);
    await client.query(`SET LOCAL lock_timeout = ${lockTimeoutMs}`);
    if (version < latestVersion) {
      await createSchema(client, table);
      await applyMigrations(client, table, await appliedVersion(client, table));
      log.info({ table: table.qualified, from: version, to: latestVersion }, "table migrated");
    }
    if (await applyColumnDefaults(client, table, entry.parameters)) {
      log.info({ table: table.qualified }, "column defaults changed");
    }
    await client.query("COMMIT");
  } catch (error) {
    await client.query("ROLLBACK").catch(() => {});
    throw explain(error, table);
  }
  const oid = await tableOid(client, table);
  if (oid === null) throw missing(table);
  return oid;
}

async function lockMigration(client: Client, name: string): Promise<void> {
  await client.query("SELECT pg_advisory_xact_lock($1, hashtext($2))", [
    lockClasses.migration,
    name,
  ]);
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

async function tableOid(client: Client, table: TaskTable): Promise<number | null> {
  const { rows } = await client.query<{ oid: number | null }>(
    "SELECT pg_catalog.to_regclass($1)::pg_catalog.oid AS oid",
    [table.qualified],
  );
  return rows[0]?.oid ?? null;
}

/** Only where it is missing: IF NOT EXISTS asks for the right to create even where it exists. */
async function createSchema(client: Client, table: TaskTable): Promise<void> {
  const { rowCount } = await client.query(
    "SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1",
    [table.schema],
  );
  if (rowCount === 0) await client.query(`CREATE SCHEMA ${identifier(table.schema)}`);
}

function explain(error: unknown, table: TaskTable): unknown {
  const words = error instanceof Error ? error.message : String(error);
  switch (sqlState(error)) {
    case "55P03":
      return new PgTaskError("SCHEMA_LOCKED", `${table.qualified} is locked by somebody`, {
        cause: error,
      });
    case "42501":
      return new PgTaskError("SCHEMA_NOT_ALLOWED", `cannot make ${table.qualified}: ${words}`, {
        cause: error,
      });
    default:
      return error;
  }
}

const missing = (table: TaskTable): PgTaskError =>
  new PgTaskError(
    "SCHEMA_MISSING",
    `${table.qualified} is missing or not up to date, and its entry says "create": false`,
  );

const newerThanThis = (table: TaskTable, version: number): PgTaskError =>
  new PgTaskError(
    "SCHEMA_INCOMPATIBLE",
    `${table.qualified} was made by a later pg-task (migration ${version}, this one knows ${latestVersion}): upgrade this pg-task`,
  );

const notOurs = (table: TaskTable): PgTaskError =>
  new PgTaskError(
    "SCHEMA_INCOMPATIBLE",
    `${table.qualified} exists and was not made by pg-task; adopting such a table is not there yet: give another "schema" or "table"`,
  );
