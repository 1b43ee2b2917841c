import type { Client } from "../../shared/postgres/client.js";
import type { PendingResults } from "../results/pendingResults.js";
import type { SessionPool } from "../sessions/sessionPool.js";
import type { OwnedTask } from "../model/tasks.js";
import { claimTime, hasId } from "../sql/fragments.sql.js";
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

/** Returns the ids of the tasks whose current claim has a proof. Reads both ledgers. */
export async function findProvenRuns(
  client: Client,
  { qualified, qualifiedLedger1, qualifiedLedger2 }: TaskTable,
  tasks: readonly OwnedTask[],
): Promise<ReadonlySet<string>> {
  const { rows } = await client.query<OwnedTask>({
    name: "proven runs",
    text: `
WITH entry AS MATERIALIZED (
  SELECT id, take FROM ${qualifiedLedger1} WHERE id = ANY ($1::bigint[]) AND place IS NULL
  UNION ALL SELECT id, take FROM ${qualifiedLedger2} WHERE id = ANY ($1::bigint[]) AND place IS NULL
)
SELECT t.id::text AS id, t.owner FROM entry AS e JOIN ${qualified} AS t ON ${hasId("e.id")} AND ${claimTime("t")} = e.take
WHERE t.owner IS NOT NULL`,
    values: [tasks.map(({ id }) => id)],
  });
  const owners = new Map(rows.map(({ id, owner }) => [id, owner]));
  return new Set(tasks.flatMap(({ id, owner }) => (owners.get(id) === owner ? id : [])));
}
