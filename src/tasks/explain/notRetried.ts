import type { TaskTable } from "../../manager/schema/taskTable.js";
import { readServerSettings } from "../../shared/config/serverSettings.js";
import type { Entry } from "../../shared/config/types.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { parseSqlstates } from "../../shared/parseSqlstates.js";
import type { ScheduleState } from "./scheduleState.js";

/** Matches errors that say themselves why the task was not tried again. */
const explainedErrors = "task took its own session down|with the same key takes its place|next run was not planned";

/**
 * Says why a task has failed although its `retry` allows more tries. The row does not store the SQLSTATE of the last
 * error, and the setting may have changed since, so this names the list that decides instead of deciding again.
 *
 * @returns null if no tries are left, or if the task has not failed. The query in a rule has no tries.
 */
export async function explainNotRetried(
  client: Queryable,
  table: TaskTable,
  id: string,
  parameters: Entry["parameters"],
): Promise<string | null> {
  const { rows } = await client.query<{ more: number; list: string | null }>(
    `SELECT (t.retry - coalesce(t.attempt, 0))::float8 AS more, t.sqlstate::text AS list FROM ${table.qualified} AS t
     WHERE t.id = $1::bigint AND t.state::text = 'FAIL' AND t.owner IS NULL AND t.retry > coalesce(t.attempt, 0)
       AND t.error::text !~ $2 AND (t.wait >= 0) IS NOT FALSE LIMIT 1`,
    [id, explainedErrors],
  );
  const [row] = rows;
  if (row === undefined) return null;
  const { more, list } = row;
  const decides =
    list === null
      ? `pg_task.sqlstate, which is now ${JSON.stringify(await readSqlstates(client, parameters))}`
      : `its sqlstate ${list}`;
  return `it was not tried again, although its retry allows ${more} more ${more === 1 ? "try" : "tries"}: its error is not among those to retry (${decides}), or is one that never is (docs/failure.md)`;
}

/**
 * Says how to have every error tried again. The statement is complete, so that it can be pasted. It changes the row that
 * goes on with the schedule of the task, if there is one: in the ended row it would have no effect on the next runs.
 */
export function retryEveryError(table: TaskTable, id: string, { repeats, successor }: ScheduleState): string {
  const change = (row: string): string => `UPDATE ${table.qualified} SET sqlstate = '{}' WHERE id = ${row};`;
  if (!repeats) return `to have every error tried again, first: ${change(id)}`;
  return successor === null
    ? "to have every error of a schedule tried again, set its sqlstate to '{}' in the row that pg-task list --schedules shows"
    : `to have every error of the schedule's next runs tried again: ${change(successor.id)}`;
}

/** Returns the value of `pg_task.sqlstate` that is in effect for the table's manager. */
async function readSqlstates(client: Queryable, parameters: Entry["parameters"]): Promise<string> {
  const name = "pg_task.sqlstate";
  const text = (await readServerSettings(client, [name])).get(name);
  return text === undefined || parseSqlstates(text) === null ? parameters[name] : text;
}
