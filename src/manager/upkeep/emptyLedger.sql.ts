import type { Client } from "../../shared/postgres/client.js";
import type { Run } from "../../shared/ipc/run.js";
import type { TaskTable } from "../schema/taskTable.js";
import { claimTime } from "../sql/fragments.sql.js";

export type Ledger = Run["ledger"];

/** Without the key that a user may have added for replication. */
const columns = "id, take, running, start, stop, place";

/**
 * Empties a ledger that new runs do not use. Proofs of tasks that still have an owner are moved to the other ledger.
 * The lock is exclusive, so every proof in it is committed. One that a late run writes afterwards is just as valid.
 *
 * @returns false if the ledger was empty.
 * @throws 55P03 (lock_not_available) at once, if a proof is not committed yet or a client is reading the ledger
 */
export async function emptyLedger(client: Client, table: TaskTable, ledger: Ledger): Promise<boolean> {
  const { qualified, qualifiedLedger1, qualifiedLedger2 } = table;
  const [from, to] = ledger === 1 ? [qualifiedLedger1, qualifiedLedger2] : [qualifiedLedger2, qualifiedLedger1];
  const { rowCount } = await client.query(`SELECT FROM ${from} LIMIT 1`);
  if (rowCount === 0) return false;
  // Statements that are sent together run in one transaction.
  await client.query(`
LOCK TABLE ${from} IN ACCESS EXCLUSIVE MODE NOWAIT;
LOCK TABLE ${qualified} IN ACCESS SHARE MODE NOWAIT;
INSERT INTO ${to} (${columns}) SELECT ${columns} FROM ${from} AS l
WHERE EXISTS (SELECT FROM ${qualified} AS t WHERE t.id = l.id AND t.owner IS NOT NULL AND ${claimTime("t")} = l.take);
TRUNCATE ${from}`);
  return true;
}
