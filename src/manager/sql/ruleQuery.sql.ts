import type { TaskTable } from "../schema/taskTable.js";
import { hasId } from "./fragments.sql.js";
import { rejectedRowRetryMs } from "../model/tuning.js";
import { shiftOf } from "../schema/jitter.sql.js";
import { noTimeError } from "../schema/startRule.sql.js";
import { isReplaced, replacedError } from "./keyWaits.sql.js";

/**
 * A rule that is a query is a run of its own, whose output is the task's planned time. A negative `wait` says that this
 * run is still to be done, and which state the last run of the task had: the negated position in this list, counted
 * from 1. PLAN means that there has been no run, and WORK that the last run has not ended.
 */
const lastStates = ["PLAN", "DONE", "FAIL", "GONE", "WORK"] as const;

const stateList = `ARRAY[${lastStates.map((state) => `'${state}'`).join(", ")}]`;

/** SQL of `wait` for the successor of the task `e`, which has ended. */
export const queryPending = `-array_position(${stateList}, e.outcome)`;

/** The output if the query returns null or no row. */
const noTime = "never";

/**
 * SQL of the input that computes the planned time of row `t` from its rule. It must not write, so that it can be
 * repeated after a crash. The output is in ISO format, whatever the session's settings are. The server refuses several
 * rows or columns, or no time, with an error from which `ruleQueryResult` removes all but the query.
 */
export const ruleInput = `concat(
      'SET LOCAL transaction_read_only = on; SET LOCAL pg_task.id = ', quote_literal(CASE WHEN t.wait < -1 THEN t.parent ELSE t.id END),
      '; SET LOCAL pg_task.state = ', quote_literal((${stateList})[-t.wait]),
      E'; SELECT coalesce(pg_catalog.to_json((\\n', rtrim(t.rule, E' \\t\\r\\n;'),
      E'\\n)::pg_catalog.timestamptz) OPERATOR(pg_catalog.#>>) ''{}'', ''${noTime}'')')`;

/**
 * Matches the times that the server writes as JSON. A rule with unbalanced parentheses can output anything, and an error
 * in reading it must not keep the row from being written.
 */
const timePattern = "^(-?infinity|[0-9]{4,}-[0-9]{2}-[0-9]{2}T[0-9:.]+[+-][0-9:]+( BC)?)$";

const answer = "substring(e.output FROM '[^\\n]*$')";

/**
 * SQL of CTEs that write the planned times that rules have returned. A time must be finite and later than that of the
 * last run; with any other answer, the row becomes FAIL. If the query has returned no time, the schedule is over, and
 * its row is deleted. A row without an earlier run becomes GONE instead, so that the user sees the reason. So does a row
 * whose key another task waits with; the CTE `key_waits` lists these.
 *
 * If the server has rejected this, or the query has failed for now, the row waits, and its query runs again.
 * `OwedSuccessors` decides when.
 *
 * The CTE `ended` has the columns id, output, stop and computes. Only rows with `computes` are written.
 *
 * @param rejection SQL of a note that says why the query runs again. Null if it does not.
 * @returns the CTEs, each followed by a comma
 */
export function planFromRule({ qualified, stateType }: TaskTable, rejection: string): string {
  const error = `CASE a.verdict WHEN 'none' THEN '${noTimeError}'
      WHEN 'replaced' THEN ${replacedError("a.waiting")} ELSE concat('ERROR:  rule returned ', a.answer, ', expected a finite time later than ', a.last) END`;
  return `answers AS MATERIALIZED (
  SELECT q.*, CASE WHEN q.time IS NOT NULL AND isfinite(q.time) AND (q.time > q.last OR q.wait = -1) THEN CASE WHEN q.waiting IS NULL THEN 'planned' ELSE 'replaced' END
    WHEN q.answer <> '${noTime}' THEN 'refused' WHEN q.wait = -1 THEN 'none' ELSE 'over' END AS verdict
  FROM (
    SELECT e.id, e.stop, t.wait, coalesce(t.due, t.plan) - ${shiftOf("t")} AS last, ${shiftOf("t")} AS shift, (SELECT k.waiting FROM key_waits AS k WHERE k.id = e.id) AS waiting, ${answer} AS answer,
      CASE WHEN ${answer} ~ '${timePattern}' THEN ${answer}::timestamptz END AS time
    FROM ended AS e JOIN ${qualified} AS t ON t.id = e.id
    WHERE e.computes AND ${rejection}::text IS NULL AND t.id = ANY (ARRAY(SELECT id FROM ended WHERE computes))
  ) AS q
), planned_by_rule AS (
  UPDATE ${qualified} AS t SET state = 'PLAN'::${stateType}, plan = a.time + a.shift, ready = a.time + a.shift <= now(), wait = NULL, due = NULL,
    owner = NULL, pid = NULL, take = NULL, start = NULL, crash = 0, error = NULL
  FROM answers AS a WHERE ${hasId("a.id")} AND a.verdict = 'planned'
), rejected_answers AS (
  UPDATE ${qualified} AS t SET state = 'PLAN'::${stateType}, plan = now() + interval '1 ms' * ${rejectedRowRetryMs.max}, ready = false,
    due = coalesce(t.due, t.plan), owner = NULL, pid = NULL, take = NULL, start = NULL, error = ${rejection}::text
  WHERE ${rejection}::text IS NOT NULL AND t.id = ANY (ARRAY(SELECT id FROM ended WHERE computes AND NOT ${isReplaced("id")}))
), ended_schedules AS (
  DELETE FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM answers WHERE verdict = 'over'))
), failed_queries AS (
  UPDATE ${qualified} AS t SET state = CASE a.verdict WHEN 'refused' THEN 'FAIL' ELSE 'GONE' END::${stateType}, stop = a.stop,
    owner = NULL, error = ${error}
  FROM answers AS a WHERE ${hasId("a.id")} AND a.verdict IN ('none', 'refused', 'replaced')
  RETURNING t.id, t.state, t.error, t.stop, t.tell
), `;
}
