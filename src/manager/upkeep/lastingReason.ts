import { sqlState } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";

/**
 * Returns why the server has refused a step of upkeep, which does not stop the manager's cycle.
 *
 * @throws the error itself if the connection is lost or the error is transient
 */
export function lastingReason(error: unknown): string {
  if (sqlState(error) === null || isTransient(error)) throw error;
  return toReport(error).message;
}
