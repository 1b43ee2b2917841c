import type { Client } from "../../shared/database.js";
import type { TaskTable } from "../../manager/table.js";

/** What can be done to one task. */
export type TaskAction = "stop" | "retry" | "run-now";

const changes: Readonly<Record<TaskAction, { readonly set: string; readonly where: string }>> = {
  stop: { set: "state = 'STOP'", where: "state::text IN ('PLAN', 'TAKE', 'WORK')" },
  // Its old plan may lie further back than it is active.
  retry: {
    set: "state = 'PLAN', plan = now(), start = NULL, stop = NULL, output = NULL, error = NULL, crash = 0",
    where: "state::text IN ('DONE', 'FAIL', 'GONE', 'STOP')",
  },
  "run-now": { set: "plan = now()", where: "state::text = 'PLAN' AND plan::timestamptz > now()" },
};

/** Changes a task if its state allows it; the state it has now, null when there is no such task. */
export async function changeTask(
  client: Client,
  { qualified }: TaskTable,
  id: string,
  action: TaskAction,
): Promise<{ readonly changed: boolean; readonly state: string } | null> {
  const { set, where } = changes[action];
  const { rows } = await client.query<{ state: string }>(
    `UPDATE ${qualified} SET ${set} WHERE id = $1::bigint AND ${where} RETURNING state::text AS state`,
    [id],
  );
  if (rows[0] !== undefined) return { changed: true, state: rows[0].state };
  const { rows: found } = await client.query<{ state: string }>(
    `SELECT state::text AS state FROM ${qualified} WHERE id = $1::bigint`,
    [id],
  );
  return found[0] === undefined ? null : { changed: false, state: found[0].state };
}
