import type { Client } from "../../shared/postgres/client.js";
import type { PendingResults } from "../results/pendingResults.js";
import type { SessionPool } from "../sessions/sessionPool.js";
import { findProvenRuns } from "./provenRuns.sql.js";
import { findDeadOwners } from "../sql/ownerBackends.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

/**
 * Discards results whose commits a crash of the server may have undone: it can lose commits that were not flushed yet,
 * although they were reported to their sessions. Called for each new connection of the manager. Of the pending results
 * that may be affected, only those with a proof (a ledger row committed together with the run's effect) are kept. The
 * tasks of the others are found later as orphans. Sessions whose backends are gone are marked as distrusted.
 */
export async function discardUnconfirmed(
  client: Client,
  table: TaskTable,
  sessions: Pick<SessionPool, "owners" | "distrust">,
  pendingResults: PendingResults,
): Promise<void> {
  const { owners } = sessions;
  if (owners.length > 0) sessions.distrust(await findDeadOwners(client, table, owners));
  let unconfirmed = pendingResults.takeUnconfirmed();
  if (unconfirmed.length === 0) return;
  try {
    const proven = await findProvenRuns(client, table, unconfirmed);
    unconfirmed = unconfirmed.filter(({ id }) => proven.has(id));
  } finally {
    // If the query failed, all these results stay pending and are checked again with the next connection.
    pendingResults.requeue(unconfirmed);
  }
}
