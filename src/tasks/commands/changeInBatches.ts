import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { changeTasks, type Change, type ChangeOptions, type ChangeResult } from "./changeTasks.js";

/** Number of rows that one statement changes. */
const batchSize = 500;

/**
 * Changes any number of tasks, with a statement for every 500 of them.
 *
 * @param onBatch called before each batch with the number of tasks so far, if there are several batches
 * @returns a result for each id, in the order of the ids
 */
export async function changeInBatches(
  client: Queryable,
  table: TaskTable,
  change: Change,
  ids: readonly string[],
  onBatch: (done: number) => void = () => {},
  options: ChangeOptions = {},
): Promise<ChangeResult[]> {
  const results: ChangeResult[] = [];
  for (let from = 0; from < ids.length; from += batchSize) {
    if (ids.length > batchSize) onBatch(from);
    results.push(...(await changeTasks(client, table, change, ids.slice(from, from + batchSize), options)));
  }
  return results;
}
