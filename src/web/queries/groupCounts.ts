import type { Client } from "../../shared/database.js";
import type { TaskTable } from "../../manager/table.js";
import type { Group, Groups } from "../schemas.js";

const windowRows = 10_000;
const mostGroups = 50;

/** The groups of the newest rows, those with something to do first. */
export async function groupCounts(client: Client, { qualified }: TaskTable): Promise<Groups> {
  const { rows } = await client.query<{ looked: number; groups: Group[] }>(
    `WITH seen AS (
       SELECT "group"::text AS "group", state::text AS state, ready, plan::timestamptz AS plan
       FROM ${qualified} ORDER BY id DESC LIMIT ${windowRows}
     )
     SELECT (SELECT count(*)::int FROM seen) AS looked, coalesce((SELECT jsonb_agg(to_jsonb(g)) FROM (
       SELECT "group",
         count(*) FILTER (WHERE state = 'PLAN')::int AS waiting,
         count(*) FILTER (WHERE state IN ('TAKE', 'WORK'))::int AS running,
         count(*) FILTER (WHERE state = 'DONE')::int AS done,
         count(*) FILTER (WHERE state = 'FAIL')::int AS failed,
         count(*) FILTER (WHERE state IN ('GONE', 'STOP'))::int AS other,
         extract(epoch FROM now() - min(plan) FILTER (WHERE ready AND isfinite(plan)))::float8 * 1000 AS "oldestDueMs"
       FROM seen GROUP BY "group"
       ORDER BY running DESC, waiting DESC, failed DESC, done DESC, "group" LIMIT ${mostGroups}
     ) AS g), '[]') AS groups`,
  );
  const { looked, groups } = rows[0] ?? { looked: 0, groups: [] };
  return { groups, rows: looked, complete: looked < windowRows };
}
