import type { Client } from "../../shared/postgres/client.js";
import type { ColumnSet } from "../schema/columnSet.js";
import type { TaskTable } from "../schema/taskTable.js";
import { successorCtes } from "../sql/insertSuccessors.sql.js";
import { tellEnds } from "../sql/tellEnds.sql.js";
import { hasId } from "../sql/fragments.sql.js";
import type { Judged } from "./lookUp.sql.js";
import { activeStates, applyVerdict, isUnread, refusal, verdictSql } from "./verdict.sql.js";

export interface EndedDependency {
  readonly predecessor: string;
  readonly task: string;
  /** The predecessor's state, or `deleted` if its row is gone. */
  readonly state: string;
  readonly unread: boolean;
}

/**
 * Reads dependencies whose predecessor has ended.
 *
 * @param request.predecessors ids of the predecessors to look at. Null means all of them.
 * @param request.except ids of dependents to skip
 */
export async function readEndedDependencies(
  client: Client,
  { qualified, qualifiedDependencies }: TaskTable,
  request: {
    readonly predecessors: readonly string[] | null;
    readonly except: readonly string[];
    readonly limit: number;
  },
): Promise<EndedDependency[]> {
  const { predecessors, except, limit } = request;
  const isChosen = predecessors === null ? "true" : "d.predecessor = ANY ($3::bigint[])";
  const { rows } = await client.query<EndedDependency>({
    name: predecessors === null ? "all ended dependencies" : "ended dependencies",
    text: `
SELECT d.predecessor::text AS predecessor, d.task::text AS task, coalesce(t.state, 'deleted') AS state, t.unread IS TRUE AS unread
FROM ${qualifiedDependencies} AS d LEFT JOIN LATERAL (
  SELECT t.state::text AS state, t.owner, ${isUnread} FROM ${qualified} AS t WHERE ${hasId("d.predecessor")}
) AS t ON true
WHERE ${isChosen} AND NOT d.failed AND d.task <> ALL ($2::bigint[])
  AND (t.state IS NULL OR t.state NOT IN ${activeStates} AND t.owner IS NULL)
LIMIT $1`,
    values: [limit, except, ...(predecessors === null ? [] : [predecessors])],
  });
  return rows;
}

/**
 * Removes dependencies whose predecessors have ended, and changes the tasks that waited for them. A dependency stays
 * until the task has ended if the predecessor's output is unread. Tasks whose row is locked are skipped. If a task no longer waits, for example because it was stopped, only its dependencies are removed,
 * all at once: nothing else would find those with `failed`. If it waits again, they are stored anew.
 *
 * @returns the tasks that were changed or wait on
 */
export async function releaseDependents(
  client: Client,
  table: TaskTable,
  columns: ColumnSet,
  dependencies: readonly EndedDependency[],
): Promise<Judged[]> {
  const { rows } = await client.query<Judged>({
    name: `release dependents ${columns.name}`,
    text: releaseStatement(table, columns),
    values: [
      dependencies.map(({ predecessor }) => predecessor),
      dependencies.map(({ task }) => task),
      dependencies.map(({ state }) => state),
      dependencies.map(({ unread }) => unread),
    ],
  });
  return rows;
}

function releaseStatement(table: TaskTable, columns: ColumnSet): string {
  const { qualified, qualifiedDependencies } = table;
  const isWaiting = "wait = 0 AND state::text = 'PLAN' AND owner IS NULL";
  const isEnded = "((d.predecessor, d.task) IN (SELECT predecessor, task FROM ended)) IS TRUE";
  const counts =
    "e.state <> 'DONE' AND (e.task IN (SELECT id FROM judged WHERE verdict = 'wait' AND upon = 'fail')) IS TRUE";
  const stays = "e.unread AND (e.task IN (SELECT id FROM judged WHERE verdict IN ('wait', 'start'))) IS TRUE";
  return `
WITH ended AS MATERIALIZED (
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::boolean[]) AS e(predecessor, task, state, unread)
), present AS MATERIALIZED (
  SELECT id FROM ${qualified} WHERE id = ANY ($2::bigint[]) AND ${isWaiting}
), waiting AS MATERIALIZED (
  SELECT id FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM present)) AND ${isWaiting} FOR NO KEY UPDATE SKIP LOCKED
), counted AS MATERIALIZED (
  SELECT e.task, min(e.predecessor) FILTER (WHERE e.state <> 'DONE') AS failed,
    (array_agg(e.state ORDER BY e.predecessor) FILTER (WHERE e.state <> 'DONE'))[1] AS state
  FROM ended AS e GROUP BY e.task
), judged AS MATERIALIZED (
  SELECT c.task AS id, w.upon, c.failed, c.state, ${verdictSql({ upon: "w.upon", open: "o.open", failed: "(c.failed IS NOT NULL OR o.failed)" })} AS verdict
  FROM counted AS c
  CROSS JOIN LATERAL (SELECT t.upon FROM ${qualified} AS t WHERE ${hasId("c.task")}) AS w
  CROSS JOIN LATERAL (SELECT
    EXISTS (SELECT FROM ${qualifiedDependencies} AS d WHERE d.task = c.task AND NOT d.failed AND NOT (${isEnded})) AS open,
    EXISTS (SELECT FROM ${qualifiedDependencies} AS d WHERE d.task = c.task AND d.failed) AS failed
  ) AS o
  WHERE (c.task IN (SELECT id FROM waiting)) IS TRUE
), kept AS (
  UPDATE ${qualifiedDependencies} AS d SET failed = CASE WHEN ${counts} THEN true END
  FROM ended AS e WHERE d.predecessor = ANY (ARRAY[e.predecessor]) AND d.task = e.task AND (${counts} OR ${stays})
), removed AS (
  DELETE FROM ${qualifiedDependencies} AS d USING ended AS e
  WHERE d.predecessor = ANY (ARRAY[e.predecessor]) AND d.task = e.task
    AND ((e.task IN (SELECT id FROM present)) IS NOT TRUE OR (e.task IN (SELECT id FROM judged)) IS TRUE
      AND NOT (${counts} OR ${stays}))
), settled AS (
  DELETE FROM ${qualifiedDependencies} AS d WHERE NOT (${isEnded}) AND d.task = ANY (ARRAY(
    SELECT id FROM judged WHERE verdict IN ('refuse', 'omit') UNION ALL SELECT task FROM ended WHERE (task IN (SELECT id FROM present)) IS NOT TRUE))
), change AS MATERIALIZED (
  SELECT id, verdict, CASE verdict WHEN 'refuse' THEN ${refusal("failed", "state")} END AS error FROM judged WHERE verdict <> 'wait'
), gone AS MATERIALIZED (
  SELECT id, now() AS stop, 'GONE' AS outcome FROM change WHERE verdict IN ('refuse', 'omit')
), ${successorCtes(table, columns, "gone")}, changed AS (
  UPDATE ${qualified} AS t SET wait = NULL,${applyVerdict(table)}
  FROM change AS c WHERE ${hasId("c.id")} RETURNING t.id, t.stop, t.tell, t.state::text AS outcome
)
SELECT id::text AS id, verdict FROM judged
UNION ALL SELECT id::text, NULL FROM (${tellEnds("SELECT * FROM changed WHERE outcome = 'GONE'")}) AS n`;
}

/** Removes the dependencies of tasks that have ended. Returns their number. */
export async function removeRead(client: Client, { qualified, qualifiedDependencies }: TaskTable): Promise<number> {
  const { rowCount } = await client.query({
    name: "remove read dependencies",
    text: `
DELETE FROM ${qualifiedDependencies} AS d WHERE d.failed IS NOT FALSE AND NOT EXISTS (
  SELECT FROM ${qualified} AS t WHERE ${hasId("d.task")} AND (t.ready IS NOT NULL OR t.owner IS NOT NULL))`,
  });
  return rowCount ?? 0;
}

/** Deletes rows that have ended, are no longer awaited, and would have been deleted at their end otherwise. */
export async function deleteAwaited(
  client: Client,
  { qualified, qualifiedDependencies }: TaskTable,
  ids: readonly string[],
): Promise<void> {
  await client.query({
    name: "delete awaited",
    text: `
DELETE FROM ${qualified} AS t WHERE t.id = ANY ($1::bigint[]) AND t.state::text IN ('DONE', 'GONE') AND t.owner IS NULL
  AND t.delete AND t.output IS NULL AND t.error IS NULL
  AND NOT EXISTS (SELECT FROM ${qualifiedDependencies} AS d WHERE d.predecessor = t.id)`,
    values: [ids],
  });
}
