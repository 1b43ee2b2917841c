import { groupHeads, startBlockers } from "../../manager/schema/startRule.sql.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";

/** Maximum number of groups that are read. */
const maxGroups = 100;

/** The first due task of a group. */
export interface FirstDueTask {
  readonly id: string;
  readonly group: string;
}

/**
 * Returns the first due task of each group, unless its row or a pause keeps it from starting, in the order of their
 * planned times: at most `limit` tasks, out of at most 100 groups.
 */
export async function readFirstDueTasks(client: Client, table: TaskTable, limit: number): Promise<FirstDueTask[]> {
  const blockers = startBlockers(table, { running: "NULL", keyRuns: "NULL", quietMs: "NULL" });
  const { rows } = await client.query<FirstDueTask>(
    `WITH ${groupHeads(table, { columns: "d.*", after: "-2147483649" })}
     SELECT t.id::text AS id, t."group"::text AS "group" FROM (SELECT * FROM head LIMIT ${maxGroups}) AS t
     WHERE cardinality(${blockers}) = 0 ORDER BY t.plan, t.id LIMIT $1`,
    [limit],
  );
  return rows;
}
