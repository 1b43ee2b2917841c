import type { Client } from "../../shared/postgres/client.js";
import type { OwnedTask, RemotePid, StartedTask } from "../model/tasks.js";
import type { TaskTable } from "../schema/taskTable.js";

/** Describes an update of one column in the rows of running tasks. */
export interface RunningUpdate<Task extends OwnedTask> {
  readonly statement: string;
  readonly column: keyof Task & string;
  readonly type: string;
  /** SQL of the new values. `t` is the task's row, and `u` is the update. */
  readonly set: string;
  /** SQL condition that selects the rows to update. The row's owner is always checked in addition. */
  readonly where: string;
}

/** Marks tasks as running in their rows. When they were claimed, these tasks were queued behind others. */
export const startUpdate: RunningUpdate<StartedTask> = {
  statement: "show started",
  column: "start",
  type: "timestamptz",
  set: "state = 'WORK', start = coalesce(u.start, t.start, now())",
  where: "t.state::text IN ('TAKE', 'WORK')",
};

/** Writes the pid of the backend on the remote server into the row of each remote task. */
export const remotePidUpdate: RunningUpdate<RemotePid> = {
  statement: "show remote pids",
  column: "pid",
  type: "integer",
  set: "pid = u.pid",
  where: "true",
};

/**
 * Updates the rows of running tasks. Rows that now have another owner, or none, are left alone.
 *
 * @returns ids of tasks that still have the same owner but whose rows are locked. They have to be tried
 *   again.
 */
export async function updateRunning<Task extends OwnedTask>(
  client: Client,
  table: TaskTable,
  update: RunningUpdate<Task>,
  tasks: readonly Task[],
): Promise<ReadonlySet<string>> {
  const { rows } = await client.query<{ id: string | number }>({
    name: update.statement,
    text: updateStatement(table, update),
    values: [tasks.map((task) => task.id), tasks.map((task) => task.owner), tasks.map((task) => task[update.column])],
  });
  return new Set(rows.map((row) => String(row.id)));
}

function updateStatement<Task extends OwnedTask>(
  { qualified }: TaskTable,
  { column, type, set, where }: RunningUpdate<Task>,
): string {
  return `
WITH change AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::${type}[]) AS u(id, owner, ${column})
), owned AS MATERIALIZED (
  SELECT t.id FROM ${qualified} AS t JOIN change AS u ON u.id = t.id
  WHERE t.id = ANY ($1::bigint[]) AND t.owner = u.owner AND ${where}
), locked AS MATERIALIZED (
  SELECT id FROM ${qualified} AS t WHERE id = ANY (ARRAY(SELECT id FROM owned)) AND owner = ANY ($2::text[])
    AND ${where}
  FOR NO KEY UPDATE SKIP LOCKED
), updated AS (
  UPDATE ${qualified} AS t SET ${set} FROM change AS u
  WHERE t.id = u.id AND t.owner = u.owner AND t.id = ANY (ARRAY(SELECT id FROM locked))
)
SELECT id FROM owned WHERE id <> ALL (ARRAY(SELECT id FROM locked))`;
}
