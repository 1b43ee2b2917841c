import type { TaskTable } from "../schema/taskTable.js";
import type { ClaimedTask } from "../model/tasks.js";
import { hasKey, keyOf } from "./keyWaits.sql.js";
import { ruleInput } from "./ruleQuery.sql.js";
import { claimTime, isOverlapping, isRepeating } from "./fragments.sql.js";
import { gapMs, hasGap, maxOthers, mustRunQuery } from "../schema/startRule.sql.js";

/** A claimed row, with the columns of `claimedColumns`. */
export interface ClaimedRow {
  /** A number if the id column of the table is an integer, otherwise a string. */
  readonly id: string | number;
  readonly hash: number;
  readonly max: number;
  readonly owner: string;
  readonly input: string;
  readonly args: string | null;
  readonly group: string;
  readonly timeout_ms: number;
  readonly header: boolean;
  readonly string: boolean;
  readonly delimiter: string;
  readonly quote: string;
  readonly escape: string;
  readonly null: string;
  readonly exclusive: boolean;
  readonly gap_ms: number;
  readonly pauses: boolean;
  readonly repeats: boolean;
  readonly overlaps: boolean;
  readonly dedicated: boolean;
  readonly save: boolean;
  readonly atomic: boolean;
  readonly take: string;
  readonly remote: string | null;
  readonly ends_with_connection: boolean;
  readonly starts_now: boolean;
  readonly data: string | null;
  readonly version: string;
  readonly key: string | null;
  readonly planned: number | null;
}

/** The columns that every claim returns. */
export type CommonColumns = Omit<
  ClaimedRow,
  | "exclusive"
  | "gap_ms"
  | "pauses"
  | "dedicated"
  | "save"
  | "remote"
  | "ends_with_connection"
  | "starts_now"
  | "overlaps"
  | "key"
>;

/**
 * The properties that only exclusive tasks have, and `startsNow`. They are the same for all tasks of a queued claim,
 * which takes no exclusive tasks and starts no task at once.
 */
type ExclusiveTraits = Pick<
  ClaimedTask,
  "startsNow" | "exclusive" | "hasGap" | "dedicated" | "save" | "remote" | "endsWithConnection" | "overlaps" | "key"
> & {
  readonly pauses: boolean;
};

export function toTask(row: ClaimedRow): ClaimedTask {
  const { exclusive, dedicated, pauses, remote } = row;
  return buildTask(row, {
    startsNow: row.starts_now,
    exclusive,
    hasGap: row.gap_ms > 0,
    pauses,
    dedicated,
    // Only dedicated sessions keep anything between two tasks.
    save: dedicated && row.save,
    remote,
    endsWithConnection: row.ends_with_connection,
    overlaps: row.overlaps,
    key: row.key,
  });
}

/** Builds a task field by field, because spreading a whole row takes longer than everything else that is done here. */
export function buildTask(row: CommonColumns, traits: ExclusiveTraits): ClaimedTask {
  const { owner, hash, max, input, args, group, header, string, delimiter, quote, escape } = row;
  return {
    id: String(row.id),
    owner,
    hash,
    max,
    key: traits.key,
    startsNow: traits.startsNow,
    exclusive: traits.exclusive,
    hasGap: traits.hasGap,
    mayPause: traits.pauses || mayChangeMax(input),
    repeats: row.repeats,
    overlaps: traits.overlaps,
    input,
    args,
    group,
    timeoutMs: row.timeout_ms,
    dedicated: traits.dedicated,
    save: traits.save,
    format: { header, string, delimiter, quote, escape, null: row.null },
    atomic: row.atomic,
    claimedAt: row.take,
    planned: row.planned,
    remote: traits.remote,
    endsWithConnection: traits.endsWithConnection,
    data: row.data,
    version: row.version,
  };
}

/**
 * Returns whether the input mentions `max`. If it does, the task may change its own `max` while it runs. Whether the
 * group pauses depends on the value that `max` has when the task ends.
 */
const mayChangeMax = (input: string): boolean => /max/i.test(input);

/**
 * SQL that lets the claim commit without waiting for the WAL flush. If the server crashes before the flush, its
 * backends are gone and the tasks are due again. A crash cannot keep the effect of a run and lose the run's claim,
 * because the claim comes first in the WAL. A claim of remote tasks does wait for the flush. If it did not, a crash
 * could lose the claim while the tasks continue to run on another server.
 */
export const unflushed = `set_config('synchronous_commit',
  CASE WHEN bool_or(remote IS NOT NULL) THEN current_setting('synchronous_commit') ELSE 'off' END, true)`;

/**
 * SQL condition that is true if a task is exclusive (must be alone in its session's queue). The run of such a task can
 * end or replace the session, keep it as a dedicated session, or make the group pause. A task is also exclusive if its
 * successor has to be planned before it starts, or if the run is the query that computes its planned time. A task with a
 * gap is exclusive because the manager has to know when it starts. A task with a key is exclusive because it would have to
 * end as GONE if it were recalled while another task waits with its key.
 */
export const isExclusive = (table: TaskTable): string =>
  `max < 0 OR remote IS NOT NULL OR count > 0 OR live > interval '0' OR ${hasKey(table)} OR overlap IS TRUE OR ${mustRunQuery()} OR ${hasGap()}`;

/**
 * SQL of the SET list of a claim. The relation `g` has the columns owner, pid and starts_now.
 */
export function assigned({ stateType }: TaskTable, g: string): string {
  return `state = CASE WHEN ${g}.starts_now THEN 'WORK' ELSE 'TAKE' END::${stateType},
    ready = NULL, take = now(), start = CASE WHEN ${g}.starts_now THEN clock_timestamp() END,
    stop = NULL, output = NULL, error = NULL, owner = ${g}.owner, pid = ${g}.pid`;
}

/** SQL of the columns of row `t` that a claim returns. */
export function claimedColumns(table: TaskTable, g: string, traced: boolean): string {
  const computes = mustRunQuery("t.");
  return `t.id, t.hash, ${maxOthers} AS max, ${isExclusive(table)} AS exclusive, ${gapMs("t.")} AS gap_ms,
    t.owner, CASE WHEN ${computes} THEN ${ruleInput} ELSE t.input END AS input, ${argumentsOf} AS args, t."group",
    ${timeoutMs} AS timeout_ms,
    t.header, t.string, t.delimiter::text, CASE WHEN ${computes} THEN '' ELSE t.quote::text END AS quote, t.escape::text, t."null",
    t.count > 0 OR t.live > interval '0' AS dedicated, t.save, CASE WHEN NOT ${computes} THEN t.remote END AS remote,
    t.remote IS NOT NULL AND coalesce(t.retry, 0) > 0 AS ends_with_connection,
    t.atomic OR ${computes} AS atomic, ${claimTime("t")} AS take, t.max < 0 AS pauses, ${isRepeating("t.")} AS repeats,
    ${isOverlapping("t.")} AS overlaps, ${g}.starts_now,
    ${traced ? traceContext : "NULL::text"} AS data, ${versionOf("t")} AS version, ${keyOf(table, "t.")} AS key,
    CASE WHEN NOT ${computes} THEN ${plannedTime} END AS planned`;
}

/** SQL of the allowed run time of row `t`, in ms. 0 means no limit. */
export const timeoutMs =
  "CASE WHEN t.timeout > interval '0' THEN least(date_part('epoch', t.timeout) * 1000, 1e15) ELSE 0 END";

/** SQL of the planned time of row `t`, in seconds since 1970. */
export const plannedTime = "date_part('epoch', t.plan::timestamptz)";

/** SQL of the values for the input of row `t`, as text. The query of a rule gets none. */
export const argumentsOf = `CASE WHEN NOT ${mustRunQuery("t.")} THEN t.args::text END`;

/** SQL of the version of a row: the id of the transaction that wrote the row. */
export const versionOf = (t: string): string => `${t}.xmin::text`;

/** SQL of `data` if the column may hold a trace context, otherwise null. Other data is not fetched. */
export const traceContext = `CASE WHEN t.data::text LIKE '%traceparent%' THEN t.data::text END`;
