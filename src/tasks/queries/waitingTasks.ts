import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";

/** The maximum numbers of tasks that a graph shows in each direction, and of its levels in each direction. */
export const maxInDirection = 100;
export const maxLevels = 20;
/** The maximum number of predecessors, and of dependents, that a graph shows of one task. */
export const maxWidth = 30;

/** SQL condition: the row `t` waits for the end of others. */
export const isHeldSql =
  "t.wait OPERATOR(pg_catalog.>=) 0 AND t.state::pg_catalog.text OPERATOR(pg_catalog.=) 'PLAN' AND t.owner IS NULL";

/** SQL condition: the row `t` waits for the end of others, which the manager has not looked up yet. An index has it. */
export const isToLookUpSql = `t.wait OPERATOR(pg_catalog.>) 0 AND t.ready IS NOT NULL AND ${isHeldSql}`;

/** SQL condition: the row `t` has not ended. */
export const isActiveSql =
  "(t.owner IS NOT NULL OR t.state::pg_catalog.text OPERATOR(pg_catalog.=) ANY (ARRAY['PLAN', 'TAKE', 'WORK']))";

/**
 * SQL of a query for the ids of the tasks that wait for the end of one task, and for no other reason than `after`.
 *
 * Once the manager has looked up the predecessors of a task, the table of dependencies says for which ones it still
 * waits. Before that, for example while no manager runs, it waits for those in `after` that have not ended.
 *
 * @param predecessor SQL of the id of the task
 */
export const waitingIdsSql = ({ qualified, qualifiedDependencies }: TaskTable, predecessor: string): string => `
  SELECT t.id FROM ${qualified} AS t WHERE t.wait OPERATOR(pg_catalog.=) 0 AND ${isHeldSql} AND t.id OPERATOR(pg_catalog.=) ANY (ARRAY(
    SELECT d.task FROM ${qualifiedDependencies} AS d WHERE d.predecessor OPERATOR(pg_catalog.=) ${predecessor} AND NOT d.failed))
  UNION
  SELECT t.id FROM ${qualified} AS t WHERE ${isToLookUpSql} AND t.after OPERATOR(pg_catalog.@>) ARRAY[${predecessor}]
    AND EXISTS (SELECT FROM ${qualified} AS t WHERE t.id OPERATOR(pg_catalog.=) ${predecessor} AND ${isActiveSql})`;

/** Whether the role may read which tasks wait for which. True if the table has no dependencies. */
export async function mayReadDependencies(client: Client, { qualifiedDependencies }: TaskTable): Promise<boolean> {
  const { rows } = await client.query<{ allowed: boolean | null }>(
    "SELECT pg_catalog.has_table_privilege(pg_catalog.to_regclass($1), 'SELECT') AS allowed",
    [qualifiedDependencies],
  );
  return rows[0]?.allowed !== false;
}
