import type { Client } from "../../shared/postgres/client.js";
import type { PendingResults } from "../results/pendingResults.js";
import type { SessionPool } from "../sessions/sessionPool.js";
import { provenRuns } from "./provenRuns.sql.js";
import { deadOwners } from "./rescue.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

/**
 * For a connection that comes after another. A server that crashed has lost the commits that it had not
 * flushed, though their sessions were told of them: of what came out and is not written yet only what a
 * ledger proves is kept, and sessions whose server process is gone are not believed any more. The rest
 * is found as orphans.
 */
export async function discardUnconfirmed(
  client: Client,
  table: TaskTable,
  sessions: Pick<SessionPool, "owners" | "distrust">,
  outbox: PendingResults,
): Promise<void> {
  const owners = sessions.owners();
  if (owners.length > 0) sessions.distrust(await deadOwners(client, owners));
  let doubtful = outbox.takeDoubtful();
  if (doubtful.length === 0) return;
  try {
    const sure = await provenRuns(client, table, doubtful);
    doubtful = doubtful.filter(({ id }) => sure.has(id));
  } finally {
    // Those that could not be asked about stay in doubt until the next connection.
    outbox.putBack(doubtful, []);
  }
}
