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
 * Returns the first due task of each group, in the order of their planned times: at most `limit` tasks, out of at most
 * 100 groups.
 */
export async function readFirstDueTasks(
  client: Client,
  { qualified }: TaskTable,
  limit: number,
): Promise<FirstDueTask[]> {
  const first = (where: string): string => `
    SELECT id, hash, "group", plan FROM ${qualified} WHERE ready AND hash ${where} AND plan <= now()
    ORDER BY hash, greatest(max, 0) DESC, id LIMIT 1`;
  const { rows } = await client.query<FirstDueTask>(
    `WITH RECURSIVE head AS (
       (${first(">= -2147483648")})
       UNION ALL
       SELECT n.* FROM head AS h CROSS JOIN LATERAL (${first("> h.hash")}) AS n
     )
     SELECT h.id::text AS id, h."group"::text AS "group" FROM (SELECT * FROM head LIMIT ${maxGroups}) AS h
     ORDER BY h.plan, h.id LIMIT $1`,
    [limit],
  );
  return rows;
}
