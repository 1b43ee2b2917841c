import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { estimate, type Count } from "./count.js";
import { dueOrder, isDue, isLater } from "../queue.js";
import { isoTime, milliseconds } from "../time.js";

/** What waits in a table. */
export interface Backlog {
  /** Tasks in PLAN whose plan has come, and those whose plan has not. */
  readonly due: Count;
  readonly planned: Count;
  /**
   * Earliest plan of those that are due, and for how long that has been so, in ms; where not all of
   * them were counted, of those that were. The time is null without an end for a plan at -infinity.
   */
  readonly oldestDue: string | null;
  readonly oldestDueMs: number | null;
  /** Earliest plan of those that are not. */
  readonly nextPlan: string | null;
}

/** Rows of each of the queue's indexes that are counted. */
const mostCounted = 10_000;

/** By the queue's indexes, so that rows that ended cost nothing; beyond ten thousand an estimate. */
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
       SELECT t.plan::timestamptz AS plan FROM ${qualified} AS t WHERE ${isDue} ORDER BY ${dueOrder} LIMIT ${mostCounted}
     ), later AS MATERIALIZED (
       SELECT t.plan::timestamptz AS plan FROM ${qualified} AS t WHERE ${isLater} ORDER BY t.plan LIMIT ${mostCounted}
     ), due AS (
       SELECT plan FROM ready UNION ALL SELECT plan FROM later WHERE plan <= clock_timestamp()
     )
     SELECT (SELECT count(*) FROM ready)::float8 AS ready, (SELECT count(*) FROM later)::float8 AS later,
       (SELECT count(*) FROM later WHERE plan <= clock_timestamp())::float8 AS overdue,
       ${isoTime("o.plan")} AS "oldestDue",
       CASE WHEN isfinite(o.plan) THEN greatest(0, ${milliseconds("clock_timestamp() - o.plan")}) END AS "oldestDueMs",
       (SELECT ${isoTime("min(plan)")} FROM later WHERE plan > clock_timestamp()) AS "nextPlan"
     FROM (SELECT min(plan) AS plan FROM due) AS o`,
  );
  const [row] = rows;
  if (row === undefined) throw new Error("an aggregate has one row");
  const { ready, later, overdue, oldestDue, oldestDueMs, nextPlan } = row;
  const due = await orEstimate(client, ready, `${qualified} WHERE ready`);
  // NOT ready would be taken to be true of what does not wait as well.
  const planned = await orEstimate(client, later, `${qualified} WHERE ready IS FALSE`);
  return {
    // Not marked as due yet, but due they are.
    due: { ...due, value: due.value + overdue },
    planned: { ...planned, value: Math.max(0, planned.value - overdue) },
    oldestDue,
    oldestDueMs,
    nextPlan,
  };
}

async function orEstimate(client: Client, counted: number, source: string): Promise<Count> {
  if (counted < mostCounted) return { value: counted, exact: true };
  return { value: Math.max(counted, await estimate(client, source)), exact: false };
}
