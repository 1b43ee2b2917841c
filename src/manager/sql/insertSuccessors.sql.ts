import type { ColumnSet } from "../schema/columnSet.js";
import type { TaskTable } from "../schema/taskTable.js";

/**
 * How far the estimated number of missed repetitions can be wrong. Months, years, and days with a clock change vary in
 * length, but their multiples stay within a few days of the mean.
 */
const margin = 40;

/**
 * If a task repeats at a longer interval than this, its next time might exceed the range of dates. Its successor is
 * then planned for infinity.
 */
const never = "interval '5000 years'";

/** Mean length of the interval column in seconds, with Gregorian months. */
const meanSeconds = (interval: string): string =>
  `((extract(year FROM ${interval}) * 12 + extract(month FROM ${interval}))::float8 * 2629746
    + extract(day FROM ${interval})::float8 * 86400 + extract(hour FROM ${interval})::float8 * 3600
    + extract(minute FROM ${interval})::float8 * 60 + extract(second FROM ${interval})::float8)`;

/**
 * SQL that inserts the successor of each repeating task of `ended`, which has the columns id and stop. With `drift`, or
 * if the task's planned time is infinite, the successor is planned for stop + repeat. Otherwise it is planned for the
 * first `plan + n × repeat` after now. The number n is estimated and its neighbours are tried, so that a long outage
 * costs no more than a short one.
 *
 * @param ended name of a CTE
 */
export function insertSuccessors({ qualified }: TaskTable, { kept }: ColumnSet, ended: string): string {
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
