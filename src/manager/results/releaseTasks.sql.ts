import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { OwnedTask } from "../model/tasks.js";
import { inheritedCte } from "../sql/insertSuccessors.sql.js";
import { isRepeating, isSeen } from "../sql/fragments.sql.js";
import { isReplaced, keyWaits, replacedError } from "../sql/keyWaits.sql.js";

/**
 * Sets tasks that did not run, or whose run had no effect, back to PLAN. One that was set to another state in the
 * meantime keeps it. If another task waits with its key, the task becomes GONE, and the other inherits its schedule.
 *
 * @returns ids of tasks whose rows are locked or have just been changed. They have to be tried again.
 */
export async function releaseTasks(
  client: Client,
  table: TaskTable,
  tasks: readonly OwnedTask[],
): Promise<ReadonlySet<string>> {
  const { rows } = await client.query<{ id: string }>({
    name: "release",
    text: releaseStatement(table),
    values: [tasks.map((task) => task.id), tasks.map((task) => task.owner)],
  });
  return new Set(rows.map(({ id }) => id));
}

function releaseStatement(table: TaskTable): string {
  const { qualified, stateType } = table;
  return `
WITH owned AS MATERIALIZED (
  SELECT t.id FROM ${qualified} AS t JOIN unnest($1::bigint[], $2::text[]) AS r(id, owner) ON r.id = t.id
  WHERE t.id = ANY ($1::bigint[]) AND t.owner = r.owner
), locked AS MATERIALIZED (
  SELECT l.id FROM (
    SELECT id, ctid AS version, ${isRepeating()} AS repeats FROM ${qualified}
    WHERE id = ANY (ARRAY(SELECT id FROM owned)) AND owner = ANY ($2::text[])
    FOR NO KEY UPDATE SKIP LOCKED
  ) AS l WHERE NOT l.repeats OR ${isSeen(table)}
), key_waits AS MATERIALIZED (${keyWaits(table, "SELECT id FROM locked")}
), replaced AS (
  UPDATE ${qualified} AS t SET owner = NULL, stop = now(), state = 'GONE'::${stateType}, error = ${replacedError("k.waiting")}
  FROM key_waits AS k WHERE t.id = ANY (ARRAY[k.id]) AND t.state::text IN ('TAKE', 'WORK', 'PLAN')
  RETURNING t.id, t.stop, 'GONE' AS outcome
), ${inheritedCte(table, "replaced")}released AS (
  UPDATE ${qualified} SET owner = NULL, pid = NULL, take = NULL, start = NULL,
    state = CASE WHEN state::text IN ('TAKE', 'WORK') THEN 'PLAN' ELSE state::text END::${stateType},
    ready = CASE WHEN state::text IN ('TAKE', 'WORK', 'PLAN') THEN plan <= now() END
  WHERE id = ANY (ARRAY(SELECT id FROM locked)) AND NOT (state::text IN ('TAKE', 'WORK', 'PLAN') AND ${isReplaced("id")})
)
SELECT id::text AS id FROM owned WHERE id <> ALL (ARRAY(SELECT id FROM locked))`;
}
