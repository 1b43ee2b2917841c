import type { TestDatabase } from "./database.js";

/** SQL of a statement without output that waits while the gate with this name is closed. */
export const waitAt = (name: string): string =>
  `SELECT WHERE pg_advisory_xact_lock_shared(hashtext('${name}')) IS NULL`;

/** Closes a gate. Returns a function that opens it. */
export async function closeGate(database: TestDatabase, name: string): Promise<() => Promise<void>> {
  const holder = await database.connect();
  await holder.query("SELECT pg_advisory_lock(hashtext($1))", [name]);
  return async () => {
    await holder.query("SELECT pg_advisory_unlock(hashtext($1))", [name]);
  };
}

/** Locks a row of the task table, as a transaction that stays open would. Returns a function that ends it. */
export async function lockRow(database: TestDatabase, id: string): Promise<() => Promise<void>> {
  const holder = await database.connect();
  await holder.query("BEGIN");
  await holder.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [id]);
  return async () => {
    await holder.query("ROLLBACK");
  };
}
