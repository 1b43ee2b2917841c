import type { Client } from "../../shared/postgres/client.js";
import type { ColumnSet } from "../schema/columnSet.js";
import { lostDependencies } from "../schema/lostDependencies.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import { successorCtes } from "../sql/insertSuccessors.sql.js";
import { tellEnds } from "../sql/tellEnds.sql.js";
import { hasId, isToLookUp } from "../sql/fragments.sql.js";
import { activeStates, applyVerdict, isUnread, refusal, verdictSql, type Verdict } from "./verdict.sql.js";

/** The maximum number of predecessors that one statement looks up, unless a single task has more. */
const maxPredecessors = 20_000;

export interface Judged {
  readonly id: string;
  readonly verdict: Verdict;
}

interface LookedUp extends Judged {
  /** Whether rows are kept until their outputs have been read. */
  readonly unread: boolean;
}

/** Reads the ids of tasks whose predecessors have to be looked up, the oldest first. */
export async function readToLookUp(
  client: Client,
  { qualified }: TaskTable,
  limit: number,
  except: readonly string[],
): Promise<string[]> {
  const { rows } = await client.query<{ id: string }>({
    name: "tasks to look up",
    text: `
SELECT id::text AS id FROM (
  SELECT id, row_number() OVER (ORDER BY id) AS nth, sum(cardinality(after)) OVER (ORDER BY id) AS total
  FROM (SELECT id, after FROM ${qualified} WHERE ${isToLookUp} AND id <> ALL ($2::bigint[]) ORDER BY id LIMIT $1) AS t
) AS t WHERE nth = 1 OR total <= ${maxPredecessors}`,
    values: [limit, except],
  });
  return rows.map(({ id }) => id);
}

/** Lets the predecessors of tasks that have lost their dependencies be looked up again. Returns their number. */
export async function restartLookUp(client: Client, table: TaskTable, limit: number): Promise<number> {
  const { rowCount } = await client.query({
    name: "restart look up",
    text: `
WITH ${lostDependencies(table)}, locked AS MATERIALIZED (
  SELECT id FROM ${table.qualified} WHERE id = ANY (ARRAY(SELECT id FROM lost LIMIT $1)) AND wait = 0 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE ${table.qualified} SET wait = cardinality(after) WHERE id = ANY (ARRAY(SELECT id FROM locked))`,
    values: [limit],
  });
  return rowCount ?? 0;
}

/**
 * Looks up the predecessors of tasks that have been inserted with `after`. For each predecessor that has not ended, a
 * dependency is stored, and `plain` becomes false in the predecessor's row, so that its end is noticed. The rows of such
 * predecessors are locked meanwhile, so that none can end unnoticed. One that does not exist has ended as DONE, and was
 * deleted. For one that has ended, a dependency is stored if its row would be pruned, or if its failure counts. Tasks whose own row or whose predecessor's row is locked are skipped.
 */
export async function lookUpPredecessors(
  client: Client,
  table: TaskTable,
  columns: ColumnSet,
  ids: readonly string[],
): Promise<LookedUp[]> {
  const { rows } = await client.query<LookedUp>({
    name: `look up predecessors ${columns.name}`,
    text: lookUpStatement(table, columns),
    values: [ids],
  });
  return rows;
}

/**
 * A task can be a dependent and a predecessor at once, as in a chain. A statement can update a row only once, so both
 * changes are made by one UPDATE.
 */
function lookUpStatement(table: TaskTable, columns: ColumnSet): string {
  const { qualified, qualifiedDependencies } = table;
  return `
WITH waiting AS MATERIALIZED (
  SELECT id, after, upon FROM ${qualified} WHERE id = ANY ($1::bigint[]) AND ${isToLookUp} AND state::text = 'PLAN' AND owner IS NULL
  FOR NO KEY UPDATE SKIP LOCKED
), pair AS MATERIALIZED (
  SELECT DISTINCT w.id AS task, w.upon, a.predecessor FROM waiting AS w CROSS JOIN LATERAL unnest(w.after) AS a(predecessor)
), active AS MATERIALIZED (
  SELECT id FROM ${qualified} WHERE id = ANY (ARRAY(SELECT DISTINCT predecessor FROM pair))
    AND (owner IS NOT NULL OR state::text IN ${activeStates})
  FOR NO KEY UPDATE SKIP LOCKED
), seen AS MATERIALIZED (
  SELECT p.*, (p.predecessor IN (SELECT id FROM active)) IS TRUE AS is_active, t.state, t.is_active AS was_active, t.unread
  FROM pair AS p LEFT JOIN LATERAL (
    SELECT t.state::text AS state, t.owner IS NOT NULL OR t.state::text IN ${activeStates} AS is_active, ${isUnread}
    FROM ${qualified} AS t WHERE ${hasId("p.predecessor")}
  ) AS t ON true
), counted AS (
  SELECT task, upon, bool_or(is_active) AS open, bool_or(was_active AND NOT is_active) AS is_unknown,
    min(predecessor) FILTER (WHERE NOT was_active AND state <> 'DONE') AS failed
  FROM seen GROUP BY task, upon
), judged AS MATERIALIZED (
  SELECT c.task, c.upon, c.failed, ${verdictSql({ upon: "c.upon", open: "c.open", failed: "c.failed IS NOT NULL" })} AS verdict
  FROM counted AS c WHERE c.is_unknown IS NOT TRUE
), dependency AS MATERIALIZED (
  SELECT predecessor, task, CASE WHEN waits AND (is_active OR fails) THEN fails END AS failed FROM (
    SELECT s.*, NOT s.is_active AND s.upon = 'fail' AND s.state <> 'DONE' AS fails,
      (s.task IN (SELECT task FROM judged WHERE verdict = 'wait')) IS TRUE AS waits,
      (s.task IN (SELECT task FROM judged WHERE verdict = 'start')) IS TRUE AS starts FROM seen AS s
  ) AS s WHERE waits AND (is_active OR fails) OR (waits OR starts) AND unread
), stored AS (
  INSERT INTO ${qualifiedDependencies} (predecessor, task, failed) SELECT predecessor, task, failed FROM dependency
  ON CONFLICT (predecessor, task) DO UPDATE SET failed = EXCLUDED.failed
), outdated AS (
  DELETE FROM ${qualifiedDependencies} AS d WHERE d.task = ANY (ARRAY(SELECT task FROM judged))
    AND ((d.predecessor, d.task) IN (SELECT predecessor, task FROM dependency)) IS NOT TRUE
), change AS MATERIALIZED (
  SELECT id, bool_or(awaited) AS awaited, max(verdict) AS verdict, max(error) AS error FROM (
    SELECT predecessor AS id, true AS awaited, NULL AS verdict, NULL AS error FROM seen
    WHERE is_active AND (task IN (SELECT task FROM judged WHERE verdict = 'wait')) IS TRUE
    UNION ALL
    SELECT j.task, false, j.verdict, CASE j.verdict WHEN 'refuse' THEN ${refusal("j.failed", "(SELECT s.state FROM seen AS s WHERE s.task = j.task AND s.predecessor = j.failed)")} END
    FROM judged AS j
  ) AS c GROUP BY id
), ended AS MATERIALIZED (
  SELECT id, now() AS stop, 'GONE' AS outcome FROM change WHERE verdict IN ('refuse', 'omit')
), ${successorCtes(table, columns, "ended")}, changed AS (
  UPDATE ${qualified} AS t SET plain = NOT c.awaited AND t.plain IS NOT FALSE,
    wait = CASE WHEN c.verdict = 'wait' THEN 0 WHEN c.verdict IS NULL THEN t.wait END,${applyVerdict(table)}
  FROM change AS c WHERE ${hasId("c.id")} RETURNING t.id, t.stop, t.tell, t.state::text AS outcome
)
SELECT id::text AS id, verdict, EXISTS (SELECT FROM dependency WHERE failed IS NOT FALSE) AS unread FROM change WHERE verdict IS NOT NULL
UNION ALL SELECT id::text, NULL, false FROM (${tellEnds("SELECT * FROM changed WHERE outcome = 'GONE'")}) AS n`;
}
