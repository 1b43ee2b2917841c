import type { Run } from "../../shared/ipc/run.js";

/**
 * Returns the queries that reset a session. Each is sent as a message of its own. With `save`, only two settings are
 * reset: the run's timeout, because it would limit the next run, and client_encoding, because it could garble the next
 * run's text.
 */
export function resetSql(run: Pick<Run, "timeoutMs" | "save">): string[] {
  if (!run.save) return ["DISCARD ALL"];
  const timeout = run.timeoutMs > 0 ? ["RESET statement_timeout"] : [];
  return ["RESET client_encoding", ...timeout];
}
