import type { Run } from "../../shared/ipc/run.js";

/**
 * Returns the queries that reset a session. Each is sent as a message of its own. With `save`, only a timeout, which
 * would limit the next run, and client_encoding, which would garble its text, are reset.
 */
export function resetSql(run: Pick<Run, "timeoutMs" | "save">): string[] {
  if (!run.save) return ["DISCARD ALL"];
  const timeout = run.timeoutMs > 0 ? ["RESET statement_timeout"] : [];
  return ["RESET client_encoding", ...timeout];
}
