import type { Client } from "../../shared/postgres/client.js";
import type { OwnedTask, RemotePid, StartedTask } from "../model/tasks.js";
import type { TaskTable } from "../schema/taskTable.js";

/**
 * Marks tasks as running in their rows, which were queued behind others when they were claimed.
 *
 * @returns ids of tasks whose rows are locked. They have to be tried again.
 */
export async function updateStarts(
  client: Client,
  table: TaskTable,
  tasks: readonly StartedTask[],
): Promise<ReadonlySet<string>> {
  const text = updateStatement(table, {
    type: "timestamptz",
    set: "state = 'WORK', start = coalesce(u.value, t.start, now())",
    where: "t.state::text IN ('TAKE', 'WORK')",
  });
  return await update(client, { name: "show started", text }, tasks, ({ start }) => start);
}

/** Writes the pid on the remote server into the row of each remote task. Returns as `updateStarts`. */
export async function updateRemotePids(
  client: Client,
  table: TaskTable,
  tasks: readonly RemotePid[],
): Promise<ReadonlySet<string>> {
  const text = updateStatement(table, { type: "integer", set: "pid = u.value", where: "true" });
  return await update(client, { name: "show remote pids", text }, tasks, ({ pid }) => pid);
}

async function update<Task extends OwnedTask>(
  client: Client,
  statement: { readonly name: string; readonly text: string },
  tasks: readonly Task[],
  valueOf: (task: Task) => unknown,
): Promise<ReadonlySet<string>> {
  const values = [tasks.map(({ id }) => id), tasks.map(({ owner }) => owner), tasks.map(valueOf)];
  const { rows } = await client.query<{ id: string }>({ ...statement, values });
  return new Set(rows.map(({ id }) => id));
}

function updateStatement(
  { qualified }: TaskTable,
  { type, set, where }: { readonly type: string; readonly set: string; readonly where: string },
): string {
  return `
WITH change AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::${type}[]) AS u(id, owner, value)
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
SELECT id::text AS id FROM owned WHERE id <> ALL (ARRAY(SELECT id FROM locked))`;
}
