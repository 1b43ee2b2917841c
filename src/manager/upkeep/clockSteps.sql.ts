import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { shiftOf } from "../schema/jitter.sql.js";
import { margin, meanSeconds } from "../schema/repetition.sql.js";
import { hasSchedule } from "../schema/schedulesView.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

/** Longer intervals are left alone: no clock is that wrong, and multiples could exceed the range of dates. */
const longestRepeat = "interval '100 years'";

/**
 * Replans the schedules whose rows were written by a clock that was ahead of the server's present one:
 *
 * - A row that waits for its time, and was inserted in the future, gets its first time after now, if that is earlier. A
 *   plan that is later than the first time after the insertion was not computed but given, and stays. So do paused rows,
 *   and plans that come from a query.
 * - A row that waits for its next try, after one that ended in the future, waits as long from now on as it had to.
 * - A row that was claimed in the future is still running. Its schedule goes on from now, and not from its plan (`due`).
 *
 * A replanned row counts as inserted now. Otherwise, it would be replanned again after a user has moved it.
 *
 * @param aheadMs how far in the future, in ms, the times in a row must be
 * @returns how many rows were replanned, and how many have to be because they are locked
 */
export async function replanAhead(
  client: Client,
  table: TaskTable,
  aheadMs: number,
): Promise<{ readonly replanned: number; readonly locked: number }> {
  const { rows } = await client.query<{ replanned: number; locked: number }>(statement(table), [aheadMs]);
  return { replanned: rows[0]?.replanned ?? 0, locked: rows[0]?.locked ?? 0 };
}

function statement(table: TaskTable): string {
  const { qualified, schema } = table;
  const upcoming = (since: string): string =>
    `((${identifier(schema)}.task_upcoming(a.rule, a.zone, ${since} - ${shiftOf("a")}, 1))[1] + ${shiftOf("a")})`;
  const isTried = "coalesce(t.attempt > 0, false)";
  const limit = "now() + interval '1 ms' * $1::float8";
  const columns = "t.id, t.rule, t.zone, t.repeat, t.drift, t.plan, t.due, t.shift, coalesce(t.due, t.plan) AS place";
  return `
WITH ahead AS MATERIALIZED (
  SELECT ${columns}, CASE WHEN ${isTried} THEN 'retry' ELSE 'first' END AS kind,
    CASE WHEN ${isTried} THEN t.stop ELSE t.created END AS at
  FROM ${qualified} AS t
  WHERE ${hasSchedule("t")} AND t.ready IS NOT NULL AND t.wait IS NULL AND t.plan > now() AND isfinite(t.plan)
    AND CASE WHEN ${isTried} THEN t.stop > ${limit} AND t.plan >= t.stop ELSE t.created > ${limit} AND t.due IS NULL END
  UNION ALL
  SELECT ${columns}, 'run', t.take
  FROM ${qualified} AS t
  WHERE ${hasSchedule("t")} AND t.ready IS NULL AND t.take > ${limit} AND t.wait IS NULL
    AND t.state::text IN ('TAKE', 'WORK') AND coalesce(t.due, t.plan) BETWEEN now() AND t.take
), computed AS MATERIALIZED (
  SELECT a.id, a.plan, a.kind, n.plan AS first,
    CASE WHEN a.rule IS NOT NULL THEN now() ELSE n.last END AS last,
    a.plan <= CASE WHEN a.rule IS NOT NULL THEN ${upcoming("a.at")} ELSE a.at + a.repeat END AS is_computed,
    now() + (a.plan - a.at) AS retried, a.place
  FROM ahead AS a CROSS JOIN LATERAL (
    SELECT CASE WHEN a.kind = 'first' THEN ${upcoming("now()")} END AS plan, NULL::timestamptz AS last WHERE a.rule IS NOT NULL
    UNION ALL
    SELECT now() + a.repeat, NULL WHERE a.rule IS NULL AND a.drift AND a.repeat <= ${longestRepeat}
    UNION ALL
    SELECT min(r.at) FILTER (WHERE r.at > now()), max(r.at) FILTER (WHERE r.at <= now())
    FROM (SELECT floor(extract(epoch FROM a.place - now())::float8 / ${meanSeconds("a.repeat")})::bigint AS n) AS p,
      LATERAL generate_series(greatest(0, p.n - ${margin}), p.n + ${margin}) AS i,
      LATERAL (SELECT a.place - a.repeat * i::float8 AS at) AS r
    WHERE a.rule IS NULL AND NOT a.drift AND a.repeat <= ${longestRepeat}
  ) AS n
), changes AS MATERIALIZED (
  SELECT c.id, c.plan AS former, c.kind,
    CASE c.kind WHEN 'first' THEN c.first WHEN 'retry' THEN least(c.plan, c.retried) ELSE c.plan END AS plan,
    CASE WHEN c.kind <> 'first' AND c.place > now() THEN c.last END AS due
  FROM computed AS c
  WHERE CASE c.kind WHEN 'first' THEN c.is_computed AND c.first < c.plan WHEN 'retry' THEN c.retried < c.plan ELSE c.last IS NOT NULL END
), locked AS MATERIALIZED (
  SELECT t.id FROM ${qualified} AS t JOIN changes AS c ON c.id = t.id
  WHERE t.id = ANY (ARRAY(SELECT id FROM changes)) AND t.plan = c.former
    AND CASE WHEN c.kind = 'run' THEN t.ready IS NULL AND t.state::text IN ('TAKE', 'WORK') ELSE t.ready IS NOT NULL END
  FOR NO KEY UPDATE OF t SKIP LOCKED
), replanned AS (
  UPDATE ${qualified} AS t SET plan = c.plan, due = coalesce(c.due, t.due),
    ready = CASE WHEN c.kind <> 'run' THEN c.plan <= now() END,
    created = least(t.created, now())
  FROM changes AS c WHERE t.id = c.id AND t.id = ANY (ARRAY(SELECT id FROM locked))
  RETURNING t.id
)
SELECT (SELECT count(*) FROM replanned)::integer AS replanned,
  (SELECT count(*) FROM changes WHERE id NOT IN (SELECT id FROM locked))::integer AS locked`;
}
