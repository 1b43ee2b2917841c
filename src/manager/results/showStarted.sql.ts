import type { Client } from "../../shared/postgres/client.js";
import type { StartedTask } from "../sessions/session.js";
import type { TaskTable } from "../schema/taskTable.js";

/**
 * Shows in their rows that tasks run which waited behind others before. Guarded by owner.
 *
 * @returns ids of tasks that are still ours but whose row somebody has locked: do it later.
 */
export async function showStarted(
  client: Client,
  table: TaskTable,
  tasks: readonly StartedTask[],
): Promise<ReadonlySet<string>> {
  const { rows } = await client.query<{ id: string | number }>({
    name: "show started",
    text: showStatement(table),
    values: [
      tasks.map((task) => task.id),
      tasks.map((task) => task.owner),
      tasks.map((task) => task.start),
    ],
  });
  return new Set(rows.map((row) => String(row.id)));
}

function showStatement({ qualified }: TaskTable): string {
  return `
WITH task AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::timestamptz[]) AS s(id, owner, start)
), mine AS MATERIALIZED (
  SELECT t.id FROM ${qualified} AS t JOIN task AS s ON s.id = t.id
  WHERE t.id = ANY ($1::bigint[]) AND t.owner = s.owner AND t.state::text IN ('TAKE', 'WORK')
), locked AS MATERIALIZED (
  SELECT id FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM mine)) AND owner = ANY ($2::text[])
    AND state::text IN ('TAKE', 'WORK')
  FOR NO KEY UPDATE SKIP LOCKED
), shown AS (
  UPDATE ${qualified} AS t SET state = 'WORK', start = coalesce(s.start, t.start, now()) FROM task AS s
  WHERE t.id = s.id AND t.owner = s.owner AND t.id = ANY (ARRAY(SELECT id FROM locked))
)
SELECT id FROM mine WHERE id <> ALL (ARRAY(SELECT id FROM locked))`;
}
