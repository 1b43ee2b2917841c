import type { Run } from "../../shared/ipc/run.js";

/**
 * Returns the queries that reset a session. Each is sent as a message of its own. With `save`, only the settings
 * are reset that concern the next run: the run's timeout would limit it, client_encoding could garble its text, and it
 * may have no args.
 */
export function resetSql(run: Pick<Run, "timeoutMs" | "save" | "args">): string[] {
  if (!run.save) return ["DISCARD ALL"];
  const timeout = run.timeoutMs > 0 ? ["RESET statement_timeout"] : [];
  const args = run.args === null ? [] : ["RESET pg_task.args"];
  return ["RESET client_encoding", ...timeout, ...args];
}
