import type { ColumnSet } from "../schema/columnSet.js";
import { clockStepMs } from "../model/tuning.js";
import { shiftOf } from "../schema/jitter.sql.js";
import { margin, meanSeconds } from "../schema/repetition.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { isRepeating } from "./fragments.sql.js";
import { isReplaced, keyWaits } from "./keyWaits.sql.js";
import { queryPending } from "./ruleQuery.sql.js";
import { mustRunQuery } from "../schema/startRule.sql.js";

/** With longer intervals, times might exceed the range of dates. Successors are then planned for infinity. */
const never = "interval '5000 years'";

/** SQL: whether the server's clock was set back after the task was claimed. Its schedule then goes on from now. */
export const isClockSetBack = `(t.take > now() + interval '1 ms' * ${clockStepMs}) IS TRUE`;

/** The time after which a successor can be planned. With `catchup`, it lies in the past. */
const earliest = `CASE WHEN t.catchup IS NOT TRUE OR ${isClockSetBack} THEN now() WHEN t.active < ${never} THEN now() - t.active ELSE '-infinity' END`;

/**
 * SQL of the next time of a row with `repeat`: the first `last + n × repeat` later than `earliest`. The number n is
 * estimated and its neighbours are tried, so that a long outage costs no more than a short one. With `drift`, or if the
 * last time is infinite, the next time is stop + repeat. If the clock was set back, n can be negative.
 */
const nextRepetition = `
    CASE WHEN t.repeat > ${never} THEN 'infinity' WHEN t.drift OR NOT isfinite(s.last) THEN least(e.stop, now()) + t.repeat
      WHEN NOT isfinite(s.earliest) THEN s.last + t.repeat ELSE (
      SELECT min(s.last + t.repeat * i::float8)
      FROM (SELECT floor(extract(epoch FROM s.earliest - s.last)::float8 / ${meanSeconds("t.repeat")})::bigint AS n,
        CASE WHEN ${isClockSetBack} THEN -9223372036854775807 ELSE 1 END AS least) AS p,
        LATERAL generate_series(greatest(p.least, p.n - ${margin}), greatest(p.least, p.n) + ${margin}) AS i
      WHERE s.last + t.repeat * i::float8 > s.earliest
    ) END`;

/**
 * SQL of CTEs that insert the successor of each repeating task of `ended`. The schedule goes on from the planned time,
 * or from `due` if that was moved. The last CTE, `repeated`, has the columns id and parent of the successors. If
 * another task waits with the key of a successor, that task inherits the schedule instead.
 *
 * @param ended name of a CTE with the columns id, stop and outcome: DONE, FAIL, GONE, or WORK if the successor is
 *   planned when the run starts
 * @param hasWaits whether the CTE `key_waits`, whose body is `keyWaits`, already exists for these tasks
 */
export function successorCtes(table: TaskTable, columns: ColumnSet, ended: string, hasWaits = false): string {
  const insert = insertSuccessors(table, columns, ended);
  if (!table.hasKeys) return `repeated AS (${insert}\n  RETURNING id, parent)`;
  const waits = hasWaits ? "" : `key_waits AS MATERIALIZED (${keyWaits(table, `SELECT id FROM ${ended}`)}\n), `;
  return `${waits}${inheritedCte(table, ended)}repeated AS (${insert} AND NOT ${isReplaced("t.id")}\n  RETURNING id, parent)`;
}

/**
 * SQL of CTEs, followed by a comma, that pass the schedules of tasks of `ended` on to the tasks that wait with their
 * keys, according to the CTE `key_waits`. A waiting task that has a schedule itself keeps that. One that inherits it
 * keeps its planned time. Its `due` is the last time of the schedule, so that its own run does not count as the next
 * one, unless it waits for others: then the schedule goes on from its own planned time.
 *
 * The ended task becomes the parent of the waiting one, unless that has a parent, so that its run is found as the last
 * one.
 */
export function inheritedCte(table: TaskTable, ended: string): string {
  const { qualified, hasKeys } = table;
  if (!hasKeys) return "";
  const columns = ["repeat", "drift", "rule", "zone", "catchup", "overlap", "jitter", "shift"];
  return `inherited AS (
  UPDATE ${qualified} AS w SET parent = coalesce(w.parent, s.id), ${columns.map((column) => `${column} = s.${column}`).join(", ")}, due = CASE WHEN w.wait >= 0 THEN w.due ELSE s.last END, wait = CASE WHEN w.wait >= 0 THEN w.wait END
  FROM (
    SELECT t.id, k.waiting, s.last, ${columns.map((column) => `t.${column}`).join(", ")}
    FROM ${nextRuns(table, ended)} JOIN key_waits AS k ON k.id = e.id WHERE NOT k.repeats AND ${isEnded(ended)} AND ${goesOn}
  ) AS s
  WHERE w.id = ANY (ARRAY[s.waiting])
), replacing AS (
  UPDATE ${qualified} AS w SET parent = s.id
  FROM (
    SELECT t.id, k.waiting FROM ${ended} AS e JOIN ${qualified} AS t ON t.id = e.id JOIN key_waits AS k ON k.id = e.id
    WHERE k.repeats AND ${isEnded(ended)}
  ) AS s
  WHERE w.id = ANY (ARRAY[s.waiting]) AND w.parent IS NULL
), `;
}

const isEnded = (ended: string): string => `${isRepeating("t.")} AND t.id = ANY (ARRAY(SELECT id FROM ${ended}))`;

/** The query of the rule has not failed, which would end the schedule. */
const goesOn = `(e.outcome = 'GONE' OR NOT ${mustRunQuery("t.")})`;

/** SQL of how many runs of the schedule have failed in a row. With overlap, the failures of its group are counted. */
const failures = `CASE WHEN t.suspend > 0 AND t.overlap IS NOT TRUE AND e.outcome <> 'DONE'
      THEN coalesce(t.failures, 0) + CASE WHEN e.outcome = 'FAIL' THEN 1 ELSE 0 END END`;

const isSuspended = `e.outcome = 'FAIL' AND ${failures} >= t.suspend`;

/** SQL of the plan of a suspended schedule: that of any paused one. */
const suspend = ({ qualifiedSuspended }: TaskTable): string =>
  `${qualifiedSuspended}(jsonb_build_object('id', t.id, 'key', t.key, 'failures', ${failures}), t.tell)`;

function insertSuccessors(table: TaskTable, { kept }: ColumnSet, ended: string): string {
  const { qualified } = table;
  const inherited = kept.filter((column) => column !== '"due"' && column !== '"wait"');
  const changed: Readonly<Record<string, string>> = { '"rule"': "n.rule", '"failures"': failures };
  const values = inherited.map((column) => changed[column] ?? `t.${column}`);
  return `
  INSERT INTO ${qualified} (parent, plan, due, wait, ${inherited.join(", ")})
  SELECT t.id, CASE WHEN ${isSuspended} THEN ${suspend(table)} ELSE n.plan END,
    CASE WHEN ${isSuspended} THEN coalesce(n.due, n.plan) ELSE n.due END, n.wait, ${values.join(", ")}
  FROM ${nextRuns(table, ended)}
  WHERE ${isEnded(ended)} AND ${goesOn}`;
}

/**
 * SQL of the joined tables `e` (the ended tasks), `t` (their rows), `s`, which has the last time of the schedule, and `n`,
 * which has the values of the successor. `n` has no row if the schedule is over.
 */
function nextRuns({ schema, qualified }: TaskTable, ended: string): string {
  const calendar = identifier(schema);
  return `${ended} AS e JOIN ${qualified} AS t ON t.id = e.id
  CROSS JOIN LATERAL (SELECT coalesce(t.due, t.plan) AS last, ${earliest} AS earliest, CASE WHEN t.rule IS NOT NULL THEN ${calendar}.task_rule_kind(t.rule) END AS kind) AS s
  CROSS JOIN LATERAL (
    SELECT ${nextRepetition} AS plan, NULL::timestamptz AS due, NULL::integer AS wait, t.rule WHERE t.rule IS NULL
    UNION ALL
    SELECT f.plan + ${shiftOf("t")}, NULL, NULL, f.rule
    FROM ${calendar}.task_successor(CASE WHEN s.kind <> 'query' THEN t.rule END, coalesce(t.zone, current_setting('TimeZone')),
      greatest(CASE WHEN isfinite(s.last) AND NOT ${isClockSetBack} THEN s.last ELSE now() END, s.earliest) - ${shiftOf("t")}) AS f
    WHERE f.plan IS NOT NULL
    UNION ALL
    SELECT now(), s.last, ${queryPending}, t.rule WHERE s.kind = 'query'
  ) AS n`;
}
