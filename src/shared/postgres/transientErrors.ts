import { sqlState } from "./client.js";

/**
 * SQLSTATEs of errors that can disappear on a retry: lock not available, serialization failure, deadlock, query
 * canceled.
 */
export const transientSqlStates: ReadonlySet<string> = new Set(["55P03", "40001", "40P01", "57014"]);

/** Whether the same statement can succeed if it is retried on the same connection. */
export function isTransient(error: unknown): boolean {
  const state = sqlState(error);
  return state !== null && transientSqlStates.has(state);
}
