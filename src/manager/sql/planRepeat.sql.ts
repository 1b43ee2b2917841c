import type { ColumnSet } from "../schema/columnSet.js";
import type { TaskTable } from "../schema/taskTable.js";

/**
 * How far the estimate of passed repetitions may be off: months, years and daylight saving vary in
 * length, but their multiples stay within a few days of the mean.
 */
const margin = 40;

/** So far off, dates may not reach: a repetition after this never comes. */
const never = "interval '5000 years'";

/** Mean length of the interval column in seconds, with Gregorian months. */
const meanSeconds = (interval: string): string =>
  `((extract(year FROM ${interval}) * 12 + extract(month FROM ${interval}))::float8 * 2629746
    + extract(day FROM ${interval})::float8 * 86400 + extract(hour FROM ${interval})::float8 * 3600
    + extract(minute FROM ${interval})::float8 * 60 + extract(second FROM ${interval})::float8)`;

/**
 * SQL that inserts the next task for each row of `ended` (columns id, stop) that repeats: planned
 * from its stop with drift, else at the first `plan + n × repeat` later than now. A plan without end or
 * beginning counts as drift, since no n leads away from it. The n is estimated
 * and then tried out, so that a long outage costs no more than a short one.
 *
 * @param ended name of a part of the statement.
 */
export function planRepeat({ qualified }: TaskTable, { kept }: ColumnSet, ended: string): string {
  const passed = `floor(extract(epoch FROM now() - t.plan)::float8 / ${meanSeconds("t.repeat")})::bigint`;
  const next = `
    CASE WHEN t.repeat > ${never} THEN 'infinity' WHEN t.drift OR NOT isfinite(t.plan) THEN e.stop + t.repeat ELSE (
      SELECT min(t.plan + t.repeat * i::float8)
      FROM (SELECT ${passed} AS n) AS p,
        LATERAL generate_series(greatest(1, p.n - ${margin}), greatest(1, p.n) + ${margin}) AS i
      WHERE t.plan + t.repeat * i::float8 > now()
    ) END`;
  const columns = kept.map((column) => `t.${column}`).join(", ");
  return `
  INSERT INTO ${qualified} (parent, plan, ${kept.join(", ")})
  SELECT t.id, ${next}, ${columns}
  FROM ${ended} AS e JOIN ${qualified} AS t ON t.id = e.id
  WHERE t.repeat > interval '0' AND t.id = ANY (ARRAY(SELECT id FROM ${ended}))`;
}
