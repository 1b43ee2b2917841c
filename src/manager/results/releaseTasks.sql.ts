import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";

/** A task and the session that had it. */
export interface OwnedTask {
  readonly id: string;
  readonly owner: string;
}

/**
 * Returns tasks that did not run, or whose run left nothing behind, to PLAN. A state that was set
 * meanwhile stays.
 *
 * @returns ids of tasks that are still ours but whose row somebody has locked: do it later.
 */
export async function releaseTasks(
  client: Client,
  table: TaskTable,
  tasks: readonly OwnedTask[],
): Promise<ReadonlySet<string>> {
  const { rows } = await client.query<{ id: string | number }>({
    name: "give back",
    text: giveBackStatement(table),
    values: [tasks.map((task) => task.id), tasks.map((task) => task.owner)],
  });
  return new Set(rows.map((row) => String(row.id)));
}

function giveBackStatement({ qualified, stateType }: TaskTable): string {
  return `
WITH mine AS MATERIALIZED (
  SELECT t.id FROM ${qualified} AS t JOIN unnest($1::bigint[], $2::text[]) AS g(id, owner) ON g.id = t.id
  WHERE t.id = ANY ($1::bigint[]) AND t.owner = g.owner
), locked AS MATERIALIZED (
  SELECT id FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM mine)) AND owner = ANY ($2::text[])
  FOR NO KEY UPDATE SKIP LOCKED
), returned AS (
  UPDATE ${qualified} SET owner = NULL, pid = NULL, take = NULL, start = NULL,
    state = CASE WHEN state::text IN ('TAKE', 'WORK') THEN 'PLAN' ELSE state::text END::${stateType},
    ready = CASE WHEN state::text IN ('TAKE', 'WORK', 'PLAN') THEN plan <= now() END
  WHERE id = ANY (ARRAY(SELECT id FROM locked))
)
SELECT id FROM mine WHERE id <> ALL (ARRAY(SELECT id FROM locked))`;
}
