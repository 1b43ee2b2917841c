import type { Client } from "../../shared/postgres/client.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";

/** Short, because producers queue behind a waiting ALTER TABLE. */
const lockTimeoutMs = 500;

export async function inTransaction<T>(client: Client, work: () => Promise<T>): Promise<T> {
  await client.query("BEGIN");
  try {
    await client.query(`SET LOCAL lock_timeout = ${lockTimeoutMs}`);
    const result = await work();
    await client.query("COMMIT");
    return result;
  } catch (error) {
    await client.query("ROLLBACK").catch(() => {});
    throw error;
  }
}

export async function withLockTimeout<T>(client: Client, work: () => Promise<T>): Promise<T> {
  await client.query(`SET lock_timeout = ${lockTimeoutMs}`);
  try {
    return await work();
  } finally {
    await client.query("RESET lock_timeout").catch(() => {});
  }
}

/**
 * Keeps other managers from changing tables of the schema, which share the enum type `state`, until the transaction
 * ends. `timeoutMs` can be long because no producers queue behind this lock.
 */
export async function lockSchema(client: Client, schema: string, timeoutMs = lockTimeoutMs): Promise<void> {
  await client.query(`SET LOCAL lock_timeout = ${timeoutMs}`);
  await client.query("SELECT pg_advisory_xact_lock($1, hashtext($2))", [lockClasses.change, schema]);
  await client.query(`SET LOCAL lock_timeout = ${lockTimeoutMs}`);
}
