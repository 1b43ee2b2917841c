import type { Run } from "../../shared/ipc/messages.js";
import type { TaskTable } from "../schema/taskTable.js";
import { beside } from "../sql/head.js";
import { takenAt } from "../sql/takenAt.js";

/** A task that a claim gave to a session. */
export interface ClaimedTask extends Omit<Run, "session" | "ledger"> {
  readonly owner: string;
  readonly hash: number;
  /** How many others of its group it starts beside. */
  readonly max: number;
  /** Whether it starts at once; else it waits behind others. */
  readonly front: boolean;
  /** Whether nothing may wait behind it in its session, nor it behind others. */
  readonly alone: boolean;
  /** Whether its group may pause after it. */
  readonly pauses: boolean;
  /** Whether it is planned again when it has ended. */
  readonly repeats: boolean;
  /** The column of that name where it may hold a trace context; null unless that is asked for. */
  readonly data: string | null;
  /** Which version of its row the claim has written: who changes the row makes another one. */
  readonly version: string;
}

/** Its row, as a statement with `claimedColumns` returns it. */
export interface ClaimedRow {
  /** A number where the table's own column is an integer. */
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
    front,
    alone,
    pauses: row.pauses || mayChangeMax(input),
    repeats: row.repeats,
    input,
    group,
    timeoutMs: row.timeout_ms,
    keep,
    // A session for any task is left as new.
    save: keep && row.save,
    format: { header, string, delimiter, quote, escape, null: row.null },
    atomic: row.atomic,
    take: row.take,
    remote: row.remote,
    data: row.data,
    version: row.version,
  };
}

/** A pause goes by the row as the task leaves it, and one that says so may change its own. */
export const mayChangeMax = (input: string): boolean => /max/i.test(input);

/**
 * The claim's commit waits for no flush: should the server crash before that, its processes are gone and
 * the tasks wait again, and whatever a run has committed was flushed behind its claim. But what runs on
 * another server goes on, and has to be known of.
 */
export const unflushed = `set_config('synchronous_commit',
  CASE WHEN bool_or(remote IS NOT NULL) THEN current_setting('synchronous_commit') ELSE 'off' END, true)`;

/** Whatever the task's run may do to its session or needs of it, no other is to be in the way. */
export const alone =
  "timeout > interval '0' OR max < 0 OR remote IS NOT NULL OR count > 0 OR live > interval '0'";

/** SQL of what a claim writes into a row `t`, where `g` has the session that gets it, and whether it starts at once. */
export function assigned({ stateType }: TaskTable, g: string): string {
  return `state = CASE WHEN ${g}.front THEN 'WORK' ELSE 'TAKE' END::${stateType},
    ready = NULL, take = now(), start = CASE WHEN ${g}.front THEN clock_timestamp() END,
    stop = NULL, output = NULL, error = NULL, owner = ${g}.owner, pid = ${g}.pid`;
}

/** SQL of what a claim returns of a row `t` then. */
export function claimedColumns(g: string, traced: boolean): string {
  return `t.id, t.hash, ${beside} AS max, ${alone} AS alone,
    t.owner, t.input, t."group",
    CASE WHEN t.timeout > interval '0' THEN least(date_part('epoch', t.timeout) * 1000, 1e15) ELSE 0 END AS timeout_ms,
    t.header, t.string, t.delimiter::text, t.quote::text, t.escape::text, t."null",
    t.count > 0 OR t.live > interval '0' AS keep, t.save, t.remote,
    t.atomic, ${takenAt("t")} AS take, t.max < 0 AS pauses, t.repeat > interval '0' AS repeats, ${g}.front,
    ${traced ? traceContext : "NULL::text"} AS data, ${versionOf("t")} AS version`;
}

/** SQL of which version of its row this is: the transaction that has written it. */
export const versionOf = (t: string): string => `${t}.xmin::text`;

/** What cannot be a trace context is not worth the way. */
export const traceContext = `CASE WHEN t.data::text LIKE '%traceparent%' THEN t.data::text END`;
