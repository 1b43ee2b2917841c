import { sqlState } from "./client.js";
import { deadlockDetected, lockNotAvailable, queryCanceled, serializationFailure } from "./sqlStates.js";

export const transientSqlStates: ReadonlySet<string> = new Set([
  lockNotAvailable,
  serializationFailure,
  deadlockDetected,
  queryCanceled,
]);

export function isTransient(error: unknown): boolean {
  const state = sqlState(error);
  return state !== null && transientSqlStates.has(state);
}
