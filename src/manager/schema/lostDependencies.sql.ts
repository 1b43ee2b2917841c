import type { TaskTable } from "./taskTable.js";

/**
 * SQL of CTEs, the last of which, `lost`, has the ids of tasks that wait for others although no dependency is stored, so
 * that nothing would ever release them. This happens if somebody deletes rows of the table of dependencies. The first
 * CTE reads the waiting tasks by the index of planned times, whatever the server knows about the table.
 */
export const lostDependencies = ({ qualified, qualifiedDependencies }: TaskTable): string => `waiting AS MATERIALIZED (
  SELECT id FROM ${qualified}
  WHERE NOT ready AND plan >= 'infinity' AND wait = 0 AND after IS NOT NULL AND owner IS NULL ORDER BY plan
), lost AS MATERIALIZED (
  SELECT w.id FROM waiting AS w WHERE NOT EXISTS (SELECT FROM ${qualifiedDependencies} AS d WHERE d.task = w.id)
)`;
