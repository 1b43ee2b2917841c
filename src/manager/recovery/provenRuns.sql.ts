import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { byId } from "../sql/byId.js";
import type { OwnedTask } from "../results/releaseTasks.sql.js";
import { takenAt } from "../sql/takenAt.js";

/** Those of the tasks whose run, as their row names it, is entered in a ledger. Reads both ledgers. */
export async function provenRuns(
  client: Client,
  { qualified, qualifiedLedger1, qualifiedLedger2 }: TaskTable,
  tasks: readonly OwnedTask[],
): Promise<ReadonlySet<string>> {
  const { rows } = await client.query<{ id: string | number; owner: string }>({
    name: "proven",
    text: `
WITH entry AS MATERIALIZED (
  SELECT id, take FROM ${qualifiedLedger1} WHERE id = ANY ($1::bigint[]) AND place IS NULL
  UNION ALL SELECT id, take FROM ${qualifiedLedger2} WHERE id = ANY ($1::bigint[]) AND place IS NULL
)
SELECT t.id, t.owner FROM entry AS e JOIN ${qualified} AS t ON ${byId("e.id")} AND ${takenAt("t")} = e.take
WHERE t.owner IS NOT NULL`,
    values: [tasks.map(({ id }) => id)],
  });
  const owners = new Map(rows.map(({ id, owner }) => [String(id), owner]));
  return new Set(tasks.flatMap(({ id, owner }) => (owners.get(id) === owner ? id : [])));
}
