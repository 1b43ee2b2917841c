import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { estimateRows, type Count } from "./rowCounts.js";
import { dueOrderSql, isDueSql, isPlannedSql, isoTimeSql, millisecondsSql } from "../sqlFragments.js";

/** Numbers and times of a table's waiting tasks. */
export interface Backlog {
  /** Number of tasks in state PLAN that are due, and number of tasks in PLAN that are not due yet. */
  readonly due: Count;
  readonly planned: Count;
  /**
   * Earliest planned time among the due tasks that were counted, and how long the task with this time has been due, in
   * ms. The duration is null if the planned time is -infinity.
   */
  readonly oldestDue: string | null;
  readonly oldestDueMs: number | null;
  /** Earliest planned time that has not come yet. */
  readonly nextPlan: string | null;
}

/** Maximum number of rows that are counted in each of the two indexes of waiting tasks. */
const maxCounted = 10_000;

/**
 * Counts waiting tasks with the indexes of due and of planned tasks, so that finished rows are not read. Numbers above
 * `maxCounted` are estimates.
 */
export async function readBacklog(client: Client, { qualified }: TaskTable): Promise<Backlog> {
  const { rows } = await client.query<{
    ready: number;
    later: number;
    overdue: number;
    oldestDue: string | null;
    oldestDueMs: number | null;
    nextPlan: string | null;
  }>(
    `WITH ready AS MATERIALIZED (
       SELECT t.plan::timestamptz AS plan FROM ${qualified} AS t WHERE ${isDueSql} ORDER BY ${dueOrderSql} LIMIT ${maxCounted}
     ), later AS MATERIALIZED (
       SELECT t.plan::timestamptz AS plan FROM ${qualified} AS t WHERE ${isPlannedSql} ORDER BY t.plan LIMIT ${maxCounted}
     ), due AS (
       SELECT plan FROM ready UNION ALL SELECT plan FROM later WHERE plan <= clock_timestamp()
     )
     SELECT (SELECT count(*) FROM ready)::float8 AS ready, (SELECT count(*) FROM later)::float8 AS later,
       (SELECT count(*) FROM later WHERE plan <= clock_timestamp())::float8 AS overdue,
       ${isoTimeSql("o.plan")} AS "oldestDue",
       CASE WHEN isfinite(o.plan) THEN greatest(0, ${millisecondsSql("clock_timestamp() - o.plan")}) END AS "oldestDueMs",
       (SELECT ${isoTimeSql("min(plan)")} FROM later WHERE plan > clock_timestamp()) AS "nextPlan"
     FROM (SELECT min(plan) AS plan FROM due) AS o`,
  );
  const [row] = rows;
  if (row === undefined) throw new Error("an aggregate has one row");
  const { ready, later, overdue, oldestDue, oldestDueMs, nextPlan } = row;
  const due = await countOrEstimate(client, ready, `${qualified} WHERE ready`);
  // With the condition NOT ready, the planner would also count the finished rows, in which `ready` is null.
  const planned = await countOrEstimate(client, later, `${qualified} WHERE ready IS FALSE`);
  return {
    // `overdue` counts tasks that are due but not marked due yet.
    due: { ...due, value: due.value + overdue },
    planned: { ...planned, value: Math.max(0, planned.value - overdue) },
    oldestDue,
    oldestDueMs,
    nextPlan,
  };
}

async function countOrEstimate(client: Client, counted: number, source: string): Promise<Count> {
  if (counted < maxCounted) return { value: counted, exact: true };
  return { value: Math.max(counted, await estimateRows(client, source)), exact: false };
}
