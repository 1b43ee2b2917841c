import type { TaskTable } from "../manager/table.js";
import type { Client } from "../shared/database.js";
import { isoTime } from "./time.js";

/** A group in which something runs or waits, or that is paused. */
export interface Group {
  readonly group: string | null;
  readonly running: number;
  /** In PLAN. */
  readonly waiting: number;
  /** Those whose plan has come. */
  readonly due: number;
  /** Earliest plan of a task in PLAN. */
  readonly oldest: string | null;
  /** Itself, or the whole table. */
  readonly paused: boolean;
}

/** Those with most to do first. */
export async function readGroups(
  client: Client,
  { qualified, pauses }: TaskTable,
  limit: number,
): Promise<Group[]> {
  const { rows } = await client.query<Group>(
    `SELECT g."group", g.running::float8 AS running, g.waiting::float8 AS waiting, g.due::float8 AS due,
       ${isoTime("g.oldest")} AS oldest,
       EXISTS (SELECT FROM ${pauses} AS p WHERE p."group" IS NULL OR p."group" = g."group") AS paused
     FROM (
       SELECT w."group", count(DISTINCT w.owner) AS running, count(w.plan) AS waiting,
         count(*) FILTER (WHERE w.plan <= statement_timestamp()) AS due, min(w.plan) AS oldest
       FROM (
         SELECT t."group"::text AS "group", NULL::text AS owner, t.plan::timestamptz AS plan
         FROM ${qualified} AS t WHERE t.ready
         UNION ALL
         SELECT t."group"::text, NULL, t.plan::timestamptz FROM ${qualified} AS t WHERE NOT t.ready AND t.ready IS FALSE
         UNION ALL
         SELECT t."group"::text, t.owner::text, NULL FROM ${qualified} AS t WHERE t.owner IS NOT NULL
         UNION ALL
         SELECT "group", NULL, NULL FROM ${pauses} WHERE "group" IS NOT NULL
       ) AS w GROUP BY w."group"
     ) AS g ORDER BY g.running DESC, g.due DESC, g.waiting DESC, g."group" LIMIT $1`,
    [limit],
  );
  return rows;
}
