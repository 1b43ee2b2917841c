import { literal } from "../../shared/postgres/quoting.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { ClaimedTask } from "../model/tasks.js";
import { hasKey, keyOf } from "./keyWaits.sql.js";
import { ruleInput } from "./ruleQuery.sql.js";
import { laneOf } from "../schema/lane.sql.js";
import { claimTime, isOverlapping, isRepeating } from "./fragments.sql.js";
import { hasGap, maxOthers, mustRunQuery } from "../schema/startRule.sql.js";

/** A row of `claimedColumns`. Its id is a number if the id column of the table is an integer. */
export type ClaimedRow = Omit<ClaimedTask, "id"> & { readonly id: string | number };

/** Not a copy, which would take longer than everything else that is done here. */
export const toTask = (row: ClaimedRow): ClaimedTask =>
  Object.assign(row, { id: String(row.id), mayPause: row.mayPause || mayChangeMax(row.input) });

/** Such a task may change its own `max` while it runs. Its value at the end decides whether the group pauses. */
const mayChangeMax = (input: string): boolean => /max/i.test(input);

/**
 * SQL that lets the claim commit without waiting for the WAL flush. A crash before it ends the backends, and the tasks
 * are due again. It cannot keep the effect of a run and lose the claim, which comes first in the WAL. A claim of remote
 * tasks waits for the flush, because these would continue to run on another server.
 */
export const unflushed = `set_config('synchronous_commit',
  CASE WHEN bool_or(remote IS NOT NULL) THEN current_setting('synchronous_commit') ELSE 'off' END, true)`;

/**
 * SQL condition: the task must be alone in its session's queue. It can end or replace the session, keep it as a
 * dedicated session, or make the group pause; its successor has to be planned before it starts; its run is the query
 * that computes its planned time; the manager has to know when it starts (gap); or it would have to end as GONE if it
 * were recalled while another task waits with its key.
 */
export const isExclusive = (table: TaskTable): string =>
  `max < 0 OR remote IS NOT NULL OR count > 0 OR live > interval '0' OR ${hasKey(table)} OR overlap IS TRUE OR ${mustRunQuery()} OR ${hasGap()}`;

/** The row `g` has the columns owner, pid and starts_now. */
export const assigned = ({ stateType }: TaskTable): string =>
  `state = CASE WHEN g.starts_now THEN 'WORK' ELSE 'TAKE' END::${stateType},
    ready = NULL, take = now(), start = CASE WHEN g.starts_now THEN clock_timestamp() END,
    stop = NULL, output = NULL, error = NULL, owner = g.owner, pid = g.pid`;

/** Of the row `t`, and of `g`, as for `assigned`. */
export function claimedColumns(table: TaskTable, traced: boolean): string {
  const computes = mustRunQuery("t.");
  // Only dedicated sessions keep anything between two tasks.
  const isDedicated = "(t.count > 0 OR t.live > interval '0')";
  return `t.id, t.hash, ${maxOthers} AS max, ${isExclusive(table)} AS exclusive, ${hasGap("t.")} AS "reportsStart",
    t.owner, CASE WHEN ${computes} THEN ${ruleInput} ELSE t.input END AS input, CASE WHEN NOT ${computes} THEN t.args::text END AS args,
    CASE WHEN t.after IS NOT NULL THEN ${results(table)} END AS results, t."group",
    CASE WHEN t.within IS NOT NULL THEN ${limitedMs} WHEN t.timeout > interval '0' THEN least(date_part('epoch', t.timeout) * 1000, 1e15) ELSE 0 END AS "timeoutMs",
    t.header, t.string, t.delimiter::text, CASE WHEN ${computes} THEN '' ELSE t.quote::text END AS quote, t.escape::text, t."null",
    ${isDedicated} AS dedicated, ${isDedicated} AND t.save AS save, CASE WHEN NOT ${computes} THEN t.remote END AS remote,
    t.remote IS NOT NULL AND coalesce(t.retry, 0) > 0 AS "endsWithConnection",
    t.atomic OR ${computes} AS atomic, ${claimTime("t")} AS "claimedAt", t.max < 0 AS "mayPause",
    NOT (${isRepeating("t.")} OR coalesce(t.suspend, 0) > 0 OR t.tell IS NOT NULL) AS "endsPlainly",
    ${isOverlapping("t.")} AS overlaps, g.starts_now AS "startsNow",
    ${traced ? traceContext : "NULL::text"} AS data, ${version} AS version, ${keyOf(table, "t.")} AS key,
    CASE WHEN NOT ${computes} THEN date_part('epoch', t.plan::timestamptz) END AS planned${laneColumns(table)}`;
}

/** The time limit of a run of which `within` limits the chain, or all tries. */
const limitedMs = `greatest(1, least(CASE WHEN t.timeout > interval '0' THEN date_part('epoch', t.timeout) * 1000 END,
      CASE WHEN t.deadline IS NULL THEN date_part('epoch', t.within) ELSE date_part('epoch', t.deadline - clock_timestamp()) END * 1000, 1e15))`;

/** A setting may be no larger. */
const maxResultBytes = 1 << 20;

/**
 * The outputs of the tasks for which the row `t` has waited, by id. Null if they are too large together. With users, a
 * task is not handed what its role could not read.
 */
const results = ({ qualified, usersOwner }: TaskTable): string =>
  `(SELECT CASE WHEN sum(octet_length(p.output)) > ${maxResultBytes} THEN NULL ELSE jsonb_object_agg(p.id, p.output)::text END FROM ${qualified} AS p WHERE p.id = ANY (t.after)${usersOwner === null ? "" : ` AND (p.role = t.role OR t.role = ${literal(usersOwner)})`})`;

/** With users, whose session may run the task. */
const laneColumns = (table: TaskTable): string =>
  table.usersOwner === null ? "" : `, t.role::text AS role, ${laneOf(table, "t.")} AS lane`;

/** The same for a list of columns of the row `c`. */
export const laneNames = ({ usersOwner }: TaskTable): string => (usersOwner === null ? "" : ", c.role, c.lane");

/** SQL condition, to be appended: the row belongs to the lane that the claim is for. */
export const inLane = (table: TaskTable, parameter: string, alias = ""): string =>
  table.usersOwner === null ? "" : ` AND ${laneOf(table, alias)} IS NOT DISTINCT FROM ${parameter}::text`;

export const laneParameter = (
  { usersOwner }: TaskTable,
  lane: string | null | undefined,
): readonly [] | readonly [string | null] => (usersOwner === null ? [] : [lane ?? null]);

/** Suffix of the names of prepared statements, because the text differs. */
export const forUsers = ({ usersOwner }: TaskTable): string => (usersOwner === null ? "" : " users");

/** The id of the transaction that wrote the row `t`. */
export const version = "t.xmin::text";

/** Other data is not fetched. */
const traceContext = `CASE WHEN t.data::text LIKE '%traceparent%' THEN t.data::text END`;
