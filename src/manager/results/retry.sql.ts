import type { TaskTable } from "../schema/taskTable.js";
import { isClockSetBack } from "../sql/insertSuccessors.sql.js";
import { hasId } from "../sql/fragments.sql.js";
import { mustRunQuery } from "../schema/startRule.sql.js";

/** Longest pause before a retry, in seconds (100 years), so that the planned time stays within the range of dates. */
const maxPause = 3_155_760_000;

/** How many errors of earlier tries a row keeps, and how many characters of each. */
const maxErrors = 20;
const maxErrorLength = 1_000;

/** SQL of the errors of row `t`, with that of the try `e` at the end. Anything but an array is replaced. */
const appendedErrors = `CASE WHEN jsonb_typeof(t.errors) IS DISTINCT FROM 'array' THEN '[]'
      WHEN jsonb_array_length(t.errors) < ${maxErrors} THEN t.errors ELSE t.errors - 0 END
      || jsonb_build_object('start', e.start, 'stop', e.stop, 'sqlstate', e.sqlstate, 'error', left(e.error, ${maxErrorLength}))`;

/** SQL: whether a list includes the SQLSTATE of `r`, or has only exclusions, and does not exclude it. */
const isListed = (list: string): string =>
  `NOT ${list} && ARRAY['!' || r.sqlstate, '!' || left(r.sqlstate, 2)]
        AND (${list} && ARRAY[r.sqlstate, left(r.sqlstate, 2)] OR array_to_string(${list}, ',') !~ '(^|,)[^!]')`;

/**
 * SQL: the task of row `t` is retried after the result `r`, which has the columns error and sqlstate.
 *
 * @param sqlstates SQL of the list that applies to rows without a list of their own
 */
export const isRetried = (sqlstates: string): string =>
  `(r.sqlstate IS NOT NULL AND coalesce(t.attempt, 0) < coalesce(t.retry, 0) AND t.state::text IN ('TAKE', 'WORK')
      AND NOT ${mustRunQuery("t.")} AND coalesce(t.deadline, t.start + t.within, 'infinity') > now() AND ${isListed(`coalesce(t.sqlstate, ${sqlstates})`)})`;

/** SQL: the result `r` of row `t` cannot lead to a retry. */
export const isFinalTry = "(r.error IS NULL OR coalesce(t.attempt, 0) >= coalesce(t.retry, 0))";

/**
 * SQL of a CTE that plans the next try of each task of the CTE `ended` (columns id, start, stop, error, sqlstate, retried)
 * with `retried`. The pause before it is doubled after each try. Half of it to all of it is waited, at random, so that tasks that failed together are not tried together
 * again. A group that pauses after each run pauses before a retry as well. `due` keeps the planned time of the first try,
 * from which the schedule of a repeating task goes on.
 *
 * @param output SQL of the output of the run
 * @param ceiling SQL of the longest pause, in seconds
 * @returns the CTE followed by a comma
 */
export function planRetries({ qualified, stateType }: TaskTable, output: string, ceiling: string): string {
  const seconds = "extract(epoch FROM coalesce(t.backoff, interval '1 second'))::float8";
  const pause = `least(${ceiling}::float8, ${maxPause}, ${seconds} * 2 ^ least(coalesce(t.attempt, 0), 60)) * (0.5 + random() / 2)`;
  return `retried AS (
  UPDATE ${qualified} AS t SET state = 'PLAN'::${stateType}, attempt = coalesce(t.attempt, 0) + 1, due = CASE WHEN ${isClockSetBack} THEN now() ELSE coalesce(t.due, t.plan) END,
    deadline = coalesce(t.deadline, e.start + t.within), plan = e.stop + greatest(interval '1 second' * (${pause}), interval '1 ms' * -least(t.max::float8, 0)), ready = false,
    owner = NULL, start = e.start, stop = e.stop, output = ${output}, error = e.error, errors = ${appendedErrors}
  FROM ended AS e
  WHERE ${hasId("e.id")} AND e.retried
), `;
}
