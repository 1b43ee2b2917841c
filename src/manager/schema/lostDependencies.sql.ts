import type { TaskTable } from "./taskTable.js";

/**
 * SQL of CTEs. The last one, `lost`, has the ids of tasks that nothing would ever release, because somebody has deleted
 * their dependencies. Waiting tasks are read by the index of planned times, whatever the server knows about the table.
 */
export const lostDependencies = ({ qualified, qualifiedDependencies }: TaskTable): string => `waiting AS MATERIALIZED (
  SELECT id FROM ${qualified}
  WHERE NOT ready AND plan >= 'infinity' AND wait = 0 AND after IS NOT NULL AND owner IS NULL ORDER BY plan
), lost AS MATERIALIZED (
  SELECT w.id FROM waiting AS w WHERE NOT EXISTS (SELECT FROM ${qualifiedDependencies} AS d WHERE d.task = w.id AND NOT d.failed)
)`;
