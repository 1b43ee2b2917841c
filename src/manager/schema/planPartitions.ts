import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "./taskTable.js";

export const planPartitionsProblem = "the table is partitioned by plan";

/**
 * A task that waits for others is planned for infinity by a trigger, and the server refuses a trigger that moves a new
 * row to another partition.
 */
export async function isPartitionedByPlan(client: Client, { qualified }: TaskTable): Promise<boolean> {
  const { rows } = await client.query<{ found: boolean }>(
    String.raw`SELECT EXISTS (
       SELECT FROM pg_catalog.pg_partitioned_table AS p
       WHERE (p.partrelid = $1::pg_catalog.regclass
           OR p.partrelid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree($1::pg_catalog.regclass) AS t))
         AND pg_catalog.pg_get_partkeydef(p.partrelid) ~ '\yplan\y') AS found`,
    [qualified],
  );
  return rows[0]?.found === true;
}
