import type { TaskTable } from "../../manager/schema/taskTable.js";
import { atLeast, exactly, unknownCount, type Count } from "../../shared/count.js";
import { literal } from "../../shared/postgres/quoting.js";
import type { Client } from "../../shared/postgres/client.js";
import { finalStates } from "../../shared/taskState.js";
import type { Change } from "../commands/changeTasks.js";
import { queryOne, queryValue } from "../queryOne.js";
import { isHeldSql, isToLookUpSql } from "../sqlFragments.js";
import { maxCounted } from "./counts.js";
import { mayReadDependencies } from "./dependencyGraph.js";

/** What a change would bring about besides changing the tasks. */
export interface ChangeEffects {
  /**
   * Of a stop or a deletion: how many other tasks wait for these and become GONE. Of a retry: how many of these become
   * GONE instead of running, because tasks in their `after` have not ended as they require.
   */
  readonly gone: Count;
  /** Of a retry, the first of the tasks because of whose end others become GONE. */
  readonly causes: readonly { readonly id: string; readonly state: string }[];
  /** The pauses during which tasks that are retried or planned for now do not start. `group` is null for the table. */
  readonly pauses: readonly { readonly group: string | null; readonly tasks: number }[];
  /** How many tasks do not start because of them. */
  readonly paused: Count;
}

const maxListed = 5;

/** Of more than 10,000 tasks, only the first are examined. */
export async function readChangeEffects(
  client: Client,
  table: TaskTable,
  change: Exclude<Change, "pause" | "resume">,
  ids: readonly string[],
): Promise<ChangeEffects> {
  const examined = ids.slice(0, maxCounted);
  const count = (value: number): Count =>
    value > maxCounted || examined.length < ids.length ? atLeast(Math.min(value, maxCounted)) : exactly(value);
  const none = { gone: exactly(0), causes: [], pauses: [], paused: exactly(0) };
  if (change === "stop" || change === "delete" || change === "delete even running") {
    if (!(await mayReadDependencies(client, table))) return { ...none, gone: unknownCount };
    return { ...none, gone: count(await countDependents(client, table, examined)) };
  }
  const pauses = await readPausesOf(client, table, examined);
  const paused = pauses.find(({ group }) => group === null)?.tasks ?? pauses.reduce((sum, { tasks }) => sum + tasks, 0);
  const held = { pauses: pauses.slice(0, maxListed), paused: count(paused) };
  if (change !== "retry") return { ...none, ...held };
  const { gone, causes } = await readUnmet(client, table, examined);
  return { gone: count(gone), causes, ...held };
}

const needsDone = "coalesce(t.upon, 'done') = 'done'";

/** Counts up to one more than 10,000. */
const countDependents = async (
  client: Client,
  { qualified, qualifiedDependencies }: TaskTable,
  ids: readonly string[],
): Promise<number> =>
  await queryValue(
    client,
    `WITH RECURSIVE unseen AS MATERIALIZED (
       SELECT t.id, u.id AS predecessor FROM ${qualified} AS t CROSS JOIN LATERAL unnest(t.after) AS u(id)
       WHERE ${isToLookUpSql} AND ${needsDone}
     ), gone(id) AS (
       SELECT t.id FROM ${qualified} AS t WHERE t.id = ANY ($1::bigint[]) AND t.state::text IN ('PLAN', 'TAKE', 'WORK')
       UNION
       SELECT d.id FROM gone AS g CROSS JOIN LATERAL (
         SELECT t.id FROM ${qualifiedDependencies} AS d JOIN ${qualified} AS t ON t.id = d.task
         WHERE d.predecessor = g.id AND NOT d.failed AND t.wait = 0 AND ${isHeldSql} AND ${needsDone}
         UNION ALL SELECT u.id FROM unseen AS u WHERE u.predecessor = g.id
       ) AS d
     )
     SELECT count(*)::float8 AS number FROM (SELECT id FROM gone LIMIT ${maxCounted + 1} + cardinality($1::bigint[])) AS g
     WHERE NOT EXISTS (SELECT FROM unnest($1::bigint[]) AS c(id) WHERE c.id = g.id)`,
    [ids],
  );

const hasEnded = (row: string): string =>
  `${row}.owner IS NULL AND ${row}.state::text IN (${finalStates.map(literal).join(", ")})`;

/** A task that is retried together with those for which it waits becomes GONE only if one of them does. */
const readUnmet = async (
  client: Client,
  { qualified }: TaskTable,
  ids: readonly string[],
): Promise<{ readonly gone: number; readonly causes: ChangeEffects["causes"] }> =>
  await queryOne(
    client,
    `WITH RECURSIVE given AS MATERIALIZED (
       SELECT t.id, t.after, coalesce(t.upon, 'done') AS upon FROM ${qualified} AS t
       WHERE t.id = ANY ($1::bigint[]) AND t.after IS NOT NULL AND ${hasEnded("t")}
     ), edge AS MATERIALIZED (
       SELECT g.id AS task, g.upon, u.id AS predecessor, p.state::text AS state,
         p.id IS NULL OR ${hasEnded("p")} AND NOT EXISTS (SELECT FROM unnest($1::bigint[]) AS c(id) WHERE c.id = p.id) AS ended
       FROM given AS g CROSS JOIN LATERAL unnest(g.after) AS u(id) LEFT JOIN ${qualified} AS p ON p.id = u.id
     ), unmet AS (
       SELECT task, predecessor, state FROM edge WHERE upon = 'done' AND ended AND state <> 'DONE'
     ), gone(id) AS (
       SELECT task FROM unmet
       UNION SELECT task FROM (
         SELECT task FROM edge WHERE upon = 'fail' GROUP BY task HAVING bool_and(ended AND coalesce(state, 'DONE') = 'DONE')
       ) AS needless
       UNION SELECT e.task FROM gone AS g JOIN edge AS e ON e.predecessor = g.id AND e.upon = 'done'
     )
     SELECT (SELECT count(*) FROM gone)::float8 AS gone, coalesce((
       SELECT json_agg(json_build_object('id', c.predecessor::text, 'state', c.state))
       FROM (SELECT DISTINCT predecessor, state FROM unmet ORDER BY 1 LIMIT ${maxListed}) AS c
     ), '[]') AS causes`,
    [ids],
  );

async function readPausesOf(
  client: Client,
  { qualified, pauses }: TaskTable,
  ids: readonly string[],
): Promise<ChangeEffects["pauses"]> {
  const { rows } = await client.query<ChangeEffects["pauses"][number]>(
    `SELECT p."group", count(*)::float8 AS tasks FROM ${pauses} AS p
     JOIN ${qualified} AS t ON p."group" IS NULL OR p."group" = t."group"::text
     WHERE t.id = ANY ($1::bigint[]) GROUP BY p."group" ORDER BY p."group" NULLS FIRST`,
    [ids],
  );
  return rows;
}
