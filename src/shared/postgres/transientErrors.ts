import { sqlState } from "./client.js";

/** Lock not available, serialization failure, deadlock, query canceled. */
export const transientSqlStates: ReadonlySet<string> = new Set([
  "55P03",
  "40001",
  "40P01",
  "57014",
]);

/** Whether the same statement may well succeed a little later, on the same connection. */
export function isTransient(error: unknown): boolean {
  const state = sqlState(error);
  return state !== null && transientSqlStates.has(state);
}
