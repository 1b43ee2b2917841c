import { sqlState, type Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { deadlockDetected, lockNotAvailable, uniqueViolation } from "../../shared/postgres/sqlStates.js";
import type { TaskTable } from "./taskTable.js";

/** Bytes above which an index is built concurrently, because writers would wait while the whole table is read. */
export const maxBlockingBytes = 32 * 2 ** 20;

/** Why a table has no index of keys, so that it refuses keys. */
export const keyProblems = {
  partitioned: "a unique index of a partitioned table cannot be on key alone",
  duplicates: "several waiting tasks have the same key",
  missing: "the index of keys is missing",
} as const;

export type KeyProblem = keyof typeof keyProblems;

interface IndexState {
  readonly partitioned: boolean;
  readonly large: boolean;
  readonly valid: boolean | null;
  /** Whether it has the columns that it needs: with users, each role has keys of its own. */
  readonly fits: boolean | null;
}

/**
 * The predicate names no column that a completion changes, so that completions can still write heap-only tuples.
 *
 * @param concurrently needed for a large table, and impossible in a transaction. Otherwise, the caller must be in one.
 * @returns why there is no index, or null if there is one
 */
export async function ensureKeyIndex(
  client: Client,
  table: TaskTable,
  { create, concurrently }: { readonly create: boolean; readonly concurrently: boolean },
): Promise<KeyProblem | null> {
  const { partitioned, large, valid, fits } = await readIndex(client, table, table.usersOwner !== null);
  if (partitioned) return "partitioned";
  if (valid === true && fits === true) return null;
  if (!create || (large && !concurrently)) return "missing";
  const name = identifier(table.keyIndex);
  const drop = valid !== null ? [`DROP INDEX ${identifier(table.schema)}.${name}`] : [];
  const statement = `CREATE UNIQUE INDEX ${concurrently ? "CONCURRENTLY " : ""}${name} ON ${table.qualified} (${keyColumns(table)}) WHERE key IS NOT NULL AND ready IS NOT NULL`;
  if (!concurrently) await client.query("SAVEPOINT key_index");
  try {
    for (const each of [...drop, statement]) await client.query(each);
    return null;
  } catch (error) {
    const state = sqlState(error);
    if (state !== uniqueViolation && !(concurrently && isLocked(state))) throw error;
    if (!concurrently) await client.query("ROLLBACK TO SAVEPOINT key_index");
    return state === uniqueViolation ? "duplicates" : "missing";
  }
}

export async function readKeyProblem(
  client: Client,
  table: TaskTable,
  users: boolean,
): Promise<"partitioned" | "missing" | null> {
  const { partitioned, valid, fits } = await readIndex(client, table, users);
  if (partitioned) return "partitioned";
  return valid === true && fits === true ? null : "missing";
}

/** The columns of the index: with users, each role has keys of its own. */
export const keyColumns = ({ usersOwner }: TaskTable): string => (usersOwner === null ? "key" : "role, key");

const isLocked = (state: string | null): boolean => state === lockNotAvailable || state === deadlockDetected;

async function readIndex(client: Client, table: TaskTable, users: boolean): Promise<IndexState> {
  const { rows } = await client.query<IndexState>(
    `SELECT c.relkind = 'p' AS partitioned, c.relkind = 'r' AND pg_catalog.pg_table_size(c.oid) > $3 AS large,
       i.indisvalid AS valid, i.indnkeyatts = $4::integer AS fits
     FROM pg_catalog.pg_class AS c LEFT JOIN (
       pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS n ON n.oid = i.indexrelid AND n.relname = $2
     ) ON i.indrelid = c.oid
     WHERE c.oid = $1::pg_catalog.regclass`,
    [table.qualified, table.keyIndex, maxBlockingBytes, users ? 2 : 1],
  );
  return rows[0] ?? { partitioned: false, large: false, valid: null, fits: null };
}

export const duplicateKeysQuery = ({ qualified }: TaskTable): string =>
  `SELECT key, array_agg(id) FROM ${qualified} WHERE key IS NOT NULL AND ready IS NOT NULL GROUP BY key HAVING count(*) > 1`;

/** The column of a query on `c` to which `ofRole` is appended. Without users, whoever calls needs no privilege on it. */
export const roleColumn = ({ usersOwner }: TaskTable): string => (usersOwner === null ? "" : ", c.role");

/** SQL condition, to be appended: with users, the row `alias` belongs to the role, whose key is meant. */
export const ofRole = ({ usersOwner }: TaskTable, alias: string, role = "current_user"): string =>
  usersOwner === null ? "" : ` AND ${alias}.role::text = ${role}::text`;

const roleText = (row: string): string => `coalesce(${row}.role::pg_catalog.text, '')`;

/** SQL of the id of the task that waits with the key $1, with users that of the current role. */
export const ownKeyHolderQuery = (table: TaskTable): string =>
  `SELECT w.id FROM ${table.qualified} AS w WHERE w.key = $1${ofRole(table, "w")} AND w.key IS NOT NULL AND w.ready IS NOT NULL LIMIT 1`;

/**
 * SQL of the id of the task that waits with a key. The condition is that of the index.
 *
 * @param row with users, only a task of the same role as that of this row counts
 */
export const keyHolderQuery = ({ qualified }: TaskTable, key: string, row: string | null): string =>
  `SELECT w.id FROM ${qualified} AS w WHERE w.key OPERATOR(pg_catalog.=) ${key}${row === null ? "" : ` AND ${roleText("w")} OPERATOR(pg_catalog.=) ${roleText(row)}`} AND w.key IS NOT NULL AND w.ready IS NOT NULL LIMIT 1`;
