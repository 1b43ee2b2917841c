import { sqlState, type Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { deadlockDetected, lockNotAvailable, uniqueViolation } from "../../shared/postgres/sqlStates.js";
import type { TaskTable } from "./taskTable.js";

/** Bytes above which the index is built concurrently, because writers would wait while the whole table is read. */
const maxBlockingBytes = 32 * 2 ** 20;

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
  const { partitioned, large, valid } = await readIndex(client, table);
  if (partitioned) return "partitioned";
  if (valid === true) return null;
  if (!create || (large && !concurrently)) return "missing";
  const name = identifier(table.keyIndex);
  const drop = valid === false ? [`DROP INDEX ${identifier(table.schema)}.${name}`] : [];
  const statement = `CREATE UNIQUE INDEX ${concurrently ? "CONCURRENTLY " : ""}${name} ON ${table.qualified} (key) WHERE key IS NOT NULL AND ready IS NOT NULL`;
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

export async function readKeyProblem(client: Client, table: TaskTable): Promise<"partitioned" | "missing" | null> {
  const { partitioned, valid } = await readIndex(client, table);
  if (partitioned) return "partitioned";
  return valid === true ? null : "missing";
}

const isLocked = (state: string | null): boolean => state === lockNotAvailable || state === deadlockDetected;

async function readIndex(client: Client, table: TaskTable): Promise<IndexState> {
  const { rows } = await client.query<IndexState>(
    `SELECT c.relkind = 'p' AS partitioned, c.relkind = 'r' AND pg_catalog.pg_table_size(c.oid) > $3 AS large,
       (SELECT i.indisvalid FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS n ON n.oid = i.indexrelid
         WHERE i.indrelid = c.oid AND n.relname = $2) AS valid
     FROM pg_catalog.pg_class AS c WHERE c.oid = $1::pg_catalog.regclass`,
    [table.qualified, table.keyIndex, maxBlockingBytes],
  );
  return rows[0] ?? { partitioned: false, large: false, valid: null };
}

export const duplicateKeysQuery = ({ qualified }: TaskTable): string =>
  `SELECT key, array_agg(id) FROM ${qualified} WHERE key IS NOT NULL AND ready IS NOT NULL GROUP BY key HAVING count(*) > 1`;
