import { lostDependencies } from "../../manager/schema/dependencyTable.js";
import { readIdCache } from "../../manager/schema/idCache.js";
import { isPartitionedByPlan, planPartitionsProblem } from "../../manager/schema/planPartitions.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { warn, ok, type Check } from "./check.js";

/** The maximum number of ids in one line. */
const maxShown = 10;

/** Checks what the column `after` depends on. Meant for a table whose tasks can wait for others. */
export async function checkOrder(client: Client, table: TaskTable): Promise<Check> {
  const { qualified } = table;
  const { rows } = await client.query<{ id: string }>(
    `WITH ${lostDependencies(table)} SELECT id::text AS id FROM lost ORDER BY lost.id LIMIT ${maxShown + 1}`,
  );
  if (rows.length > 0) {
    const ids = rows.slice(0, maxShown).map(({ id }) => id);
    const more = rows.length > maxShown ? " and others" : "";
    return warn(
      "order",
      `waiting for others, but their rows in ${table.qualifiedDependencies} were deleted: ${ids.join(", ")}${more}`,
      `a manager looks the others up again when it starts, and within about a minute of the next change; or UPDATE ${qualified} SET after = after || after WHERE id IN (${ids.join(", ")})`,
    );
  }
  if (await isPartitionedByPlan(client, table))
    return ok("order", `no task can wait for others (after): ${planPartitionsProblem}`);
  const cache = await readIdCache(client, table);
  if (cache === null) return ok("order", "no task waits in vain");
  return warn(
    "order",
    `${cache.sequence} hands out ${cache.size} ids at a time: a task can have a smaller id than one that was inserted before it, and cannot wait for that one`,
    `ALTER SEQUENCE ${cache.sequence} CACHE 1`,
  );
}
