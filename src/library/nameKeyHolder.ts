import type { TaskTable } from "../manager/schema/taskTable.js";
import { describeValue } from "../shared/describeValue.js";
import { PgTaskError } from "../shared/errors.js";
import type { Queryable } from "../shared/postgres/client.js";
import { findTakenKey, type NewRow } from "../tasks/commands/addTask.js";
import { readKeyHolder } from "../tasks/queries/tasksWithKey.js";

/**
 * Adds to an error TASK_KEY_TAKEN the key, which task waits with it, and what to do. In a transaction, which the error
 * has aborted, the task remains unknown. Returns any other error unchanged.
 */
export async function nameKeyHolder(
  client: Queryable,
  table: TaskTable,
  rows: readonly NewRow[],
  error: unknown,
): Promise<unknown> {
  if (!(error instanceof PgTaskError) || error.code !== "TASK_KEY_TAKEN") return error;
  const { message, cause, sqlState } = error;
  const key = findTakenKey(cause, rows);
  const id = key === null ? null : await readKeyHolder(client, table, key);
  const isShared = key !== null && rows.filter(({ columns }) => columns.get("key") === key).length > 1;
  const named = key === null ? "this key" : `the key ${describeValue(key)}`;
  const unknown = isShared ? `several of the tasks have ${named}` : `another task waits with ${named}`;
  const holder = id === null ? unknown : `task ${id} waits with ${named}`;
  return new PgTaskError(
    "TASK_KEY_TAKEN",
    `${message}: ${holder}; if one task is enough, ifKeyTaken: "join" or "skip" makes this no error`,
    { cause, ...(sqlState === undefined ? {} : { sqlState }) },
  );
}
