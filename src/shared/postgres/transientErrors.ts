import { sqlState } from "./client.js";
import { deadlockDetected, lockNotAvailable, queryCanceled, serializationFailure } from "./sqlStates.js";

/** SQLSTATEs of errors that can disappear on a retry. */
export const transientSqlStates: ReadonlySet<string> = new Set([
  lockNotAvailable,
  serializationFailure,
  deadlockDetected,
  queryCanceled,
]);

/** Whether the same statement can succeed if it is retried on the same connection. */
export function isTransient(error: unknown): boolean {
  const state = sqlState(error);
  return state !== null && transientSqlStates.has(state);
}
