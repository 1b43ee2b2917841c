import { readIdCache } from "../../manager/schema/idCache.js";
import { isPartitionedByPlan, planPartitionsProblem } from "../../manager/schema/planPartitions.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { ok, warn, type Check } from "./check.js";

/**
 * Says for which others the tasks of a table cannot wait. Null if they can wait for all that were inserted before.
 *
 * @param isAdopted whether pg-task has created or adopted the table, so that its ids are known to come from a sequence
 */
export async function checkWaiting(client: Client, table: TaskTable, isAdopted = true): Promise<Check | null> {
  if (await isPartitionedByPlan(client, table))
    return ok("order", `no task can wait for others (after): ${planPartitionsProblem}`);
  const cache = isAdopted ? await readIdCache(client, table) : null;
  if (cache === null) return null;
  return warn(
    "order",
    `${cache.sequence} hands out ${cache.size} ids at a time: a task can have a smaller id than one that was inserted before it, and cannot wait for that one`,
    `ALTER SEQUENCE ${cache.sequence} CACHE 1`,
  );
}
