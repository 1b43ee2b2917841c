import type { TaskTable } from "../schema/taskTable.js";
import type { ClaimedTask } from "../model.js";
import { claimTime, maxOthers } from "../sql/fragments.sql.js";

/** A claimed row, with the columns of `claimedColumns`. */
export interface ClaimedRow {
  /** A number if the id column of the table is an integer, otherwise a string. */
  readonly id: string | number;
  readonly hash: number;
  readonly max: number;
  readonly owner: string;
  readonly input: string;
  readonly group: string;
  readonly timeout_ms: number;
  readonly header: boolean;
  readonly string: boolean;
  readonly delimiter: string;
  readonly quote: string;
  readonly escape: string;
  readonly null: string;
  readonly alone: boolean;
  readonly pauses: boolean;
  readonly repeats: boolean;
  readonly keep: boolean;
  readonly save: boolean;
  readonly atomic: boolean;
  readonly take: string;
  readonly remote: string | null;
  readonly front: boolean;
  readonly data: string | null;
  readonly version: string;
}

export function toTask(row: ClaimedRow): ClaimedTask {
  const { owner, hash, max, input, group, header, string, delimiter, quote, escape } = row;
  const { front, alone, keep } = row;
  return {
    id: String(row.id),
    owner,
    hash,
    max,
    startsNow: front,
    exclusive: alone,
    mayPause: row.pauses || mayChangeMax(input),
    repeats: row.repeats,
    input,
    group,
    timeoutMs: row.timeout_ms,
    dedicated: keep,
    // Only dedicated sessions keep anything between two tasks.
    save: keep && row.save,
    format: { header, string, delimiter, quote, escape, null: row.null },
    atomic: row.atomic,
    claimedAt: row.take,
    remote: row.remote,
    data: row.data,
    version: row.version,
  };
}

/**
 * Returns whether a task might change its own `max` while it runs, because the task's input mentions `max`. Whether the
 * group then pauses depends on the value of `max` when the task ends.
 */
export const mayChangeMax = (input: string): boolean => /max/i.test(input);

/**
 * SQL that lets the claim commit without waiting for the WAL flush. If the server crashes before the flush, its
 * backends are gone and the tasks are due again. Whatever a run has committed was flushed after its claim. A claim of
 * remote tasks does wait for the flush: after a crash, these tasks would continue to run on another server, although
 * their rows would not show that they run.
 */
export const unflushed = `set_config('synchronous_commit',
  CASE WHEN bool_or(remote IS NOT NULL) THEN current_setting('synchronous_commit') ELSE 'off' END, true)`;

/**
 * SQL that is true if a task is exclusive (must be alone in its session's queue), because the run can end or replace
 * the session, or keep it as a dedicated session.
 */
export const alone = "timeout > interval '0' OR max < 0 OR remote IS NOT NULL OR count > 0 OR live > interval '0'";

/**
 * SQL of the SET list of a claim. The relation `g` has the columns owner, pid and front, where `front` means that the
 * task starts at once.
 */
export function assigned({ stateType }: TaskTable, g: string): string {
  return `state = CASE WHEN ${g}.front THEN 'WORK' ELSE 'TAKE' END::${stateType},
    ready = NULL, take = now(), start = CASE WHEN ${g}.front THEN clock_timestamp() END,
    stop = NULL, output = NULL, error = NULL, owner = ${g}.owner, pid = ${g}.pid`;
}

/** SQL of the columns of row `t` that a claim returns. */
export function claimedColumns(g: string, traced: boolean): string {
  return `t.id, t.hash, ${maxOthers} AS max, ${alone} AS alone,
    t.owner, t.input, t."group",
    CASE WHEN t.timeout > interval '0' THEN least(date_part('epoch', t.timeout) * 1000, 1e15) ELSE 0 END AS timeout_ms,
    t.header, t.string, t.delimiter::text, t.quote::text, t.escape::text, t."null",
    t.count > 0 OR t.live > interval '0' AS keep, t.save, t.remote,
    t.atomic, ${claimTime("t")} AS take, t.max < 0 AS pauses, t.repeat > interval '0' AS repeats, ${g}.front,
    ${traced ? traceContext : "NULL::text"} AS data, ${versionOf("t")} AS version`;
}

/** SQL of the version of a row: the id of the transaction that wrote the row. */
export const versionOf = (t: string): string => `${t}.xmin::text`;

/** SQL of `data` if the column may hold a trace context, otherwise null. Other data is not fetched. */
export const traceContext = `CASE WHEN t.data::text LIKE '%traceparent%' THEN t.data::text END`;
