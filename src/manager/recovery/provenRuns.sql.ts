import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { OwnedTask } from "../model/tasks.js";
import { claimTime, hasId } from "../sql/fragments.sql.js";

/** Returns the ids of the tasks whose current claim has a proof. Reads both ledgers. */
export async function findProvenRuns(
  client: Client,
  { qualified, qualifiedLedger1, qualifiedLedger2 }: TaskTable,
  tasks: readonly OwnedTask[],
): Promise<ReadonlySet<string>> {
  const { rows } = await client.query<{ id: string | number; owner: string }>({
    name: "proven runs",
    text: `
WITH entry AS MATERIALIZED (
  SELECT id, take FROM ${qualifiedLedger1} WHERE id = ANY ($1::bigint[]) AND place IS NULL
  UNION ALL SELECT id, take FROM ${qualifiedLedger2} WHERE id = ANY ($1::bigint[]) AND place IS NULL
)
SELECT t.id, t.owner FROM entry AS e JOIN ${qualified} AS t ON ${hasId("e.id")} AND ${claimTime("t")} = e.take
WHERE t.owner IS NOT NULL`,
    values: [tasks.map(({ id }) => id)],
  });
  const owners = new Map(rows.map(({ id, owner }) => [String(id), owner]));
  return new Set(tasks.flatMap(({ id, owner }) => (owners.get(id) === owner ? id : [])));
}
