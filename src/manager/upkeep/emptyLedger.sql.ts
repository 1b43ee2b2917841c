import type { Client } from "../../shared/postgres/client.js";
import type { Run } from "../../shared/ipc/messages.js";
import type { TaskTable } from "../schema/taskTable.js";
import { takenAt } from "../sql/takenAt.js";

export type Ledger = Run["ledger"];

/**
 * Empties a ledger that runs are not handed any more. Lines of runs whose row still names an owner are
 * carried over to the other one, since they may be needed. It never waits: fails with 55P03 when a
 * transaction that has entered itself has not ended yet, or somebody reads the ledger. With the lock
 * held all that is in it is committed, and what comes later finds it empty and is as good.
 *
 * @returns false when there was nothing in it.
 */
export async function emptyLedger(
  client: Client,
  table: TaskTable,
  ledger: Ledger,
): Promise<boolean> {
  const { qualified, qualifiedLedger1, qualifiedLedger2 } = table;
  const [from, to] =
    ledger === 1 ? [qualifiedLedger1, qualifiedLedger2] : [qualifiedLedger2, qualifiedLedger1];
  const { rowCount } = await client.query(`SELECT FROM ${from} LIMIT 1`);
  if (rowCount === 0) return false;
  // Sent as one, they are one transaction.
  await client.query(`
LOCK TABLE ${from} IN ACCESS EXCLUSIVE MODE NOWAIT;
LOCK TABLE ${qualified} IN ACCESS SHARE MODE NOWAIT;
INSERT INTO ${to} SELECT l.* FROM ${from} AS l
WHERE EXISTS (SELECT FROM ${qualified} AS t WHERE t.id = l.id AND t.owner IS NOT NULL AND ${takenAt("t")} = l.take);
TRUNCATE ${from}`);
  return true;
}
