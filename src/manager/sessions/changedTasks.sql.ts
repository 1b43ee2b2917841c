import { isDeepStrictEqual } from "node:util";
import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { claimedColumns, toTask, type ClaimedRow } from "../sql/claimedTask.sql.js";
import type { ClaimedTask, OwnedTask } from "../model/tasks.js";
import { hasId, isSetByTask } from "../sql/fragments.sql.js";
import { isBarred } from "../schema/startRule.sql.js";

/** If the session no longer owns the task, every column except `asked` and `wanted` is null. */
type ChangedRow = { readonly asked: string; readonly wanted: boolean } & ClaimedRow;

/** Returns the queued tasks that were stopped, deleted, rescheduled, paused or changed in what runs. */
export async function changedTasks(client: Client, table: TaskTable, tasks: readonly ClaimedTask[]): Promise<string[]> {
  const { rows } = await client.query<ChangedRow>({
    name: "changed tasks",
    text: statement(table),
    values: [tasks.map(({ id }) => id), tasks.map(({ owner }) => owner), tasks.map(({ version }) => version)],
  });
  const claimed = new Map(tasks.map((task) => [task.id, task]));
  return rows.flatMap(({ asked, wanted, ...row }) => {
    const task = claimed.get(asked);
    return wanted && task !== undefined && hasSameRun(task, toTask(row)) ? [] : [asked];
  });
}

function hasSameRun(claimed: ClaimedTask, now: ClaimedTask): boolean {
  const { startsNow, data, version } = claimed;
  return isDeepStrictEqual({ ...claimed, ...now, startsNow, data, version }, claimed);
}

function statement(table: TaskTable): string {
  return `
SELECT r.id::text AS asked, coalesce(c.wanted, false) AS wanted, c.*
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS r(id, owner, version)
LEFT JOIN LATERAL (
  SELECT t.state::text = 'TAKE' AND t.plan <= now() AND NOT ${isBarred(table, "t", "false")} AS wanted,
    ${claimedColumns(table, false)}
  FROM ${table.qualified} AS t, (SELECT false AS starts_now) AS g
  WHERE ${hasId("r.id")} AND t.owner = r.owner
) AS c ON true
WHERE c.wanted IS NOT TRUE OR c.version <> r.version`;
}

/** Returns the running tasks that others have deleted or set to another state. */
export async function unwantedRuns(client: Client, table: TaskTable, running: readonly OwnedTask[]): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>({
    name: "unwanted runs",
    text: `
SELECT r.id FROM unnest($1::bigint[], $2::text[]) AS r(id, owner)
WHERE NOT EXISTS (
  SELECT FROM ${table.qualified} AS t WHERE ${hasId("r.id")} AND t.owner = r.owner AND (t.state::text IN ('TAKE', 'WORK') OR ${isSetByTask}))`,
    values: [running.map((task) => task.id), running.map((task) => task.owner)],
  });
  return rows.map((row) => row.id);
}
