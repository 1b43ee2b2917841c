import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { groupColumns, slotColumns, type ClaimRequest } from "./claimFull.sql.js";
import {
  argumentsOf,
  assigned,
  buildTask,
  isExclusive,
  plannedTime,
  timeoutMs,
  traceContext,
  versionOf,
  type CommonColumns,
} from "../sql/claimedTask.sql.js";
import type { ClaimedTask, DueTask } from "../model/tasks.js";
import { claimTime, hasId, isReady, isRepeating, limitsLockWait } from "../sql/fragments.sql.js";
import { dueTasks, isGroupPaused, isLate, maxOthers } from "../schema/startRule.sql.js";

/**
 * Returns whether the queued claim can be used: every group has its own slots, and no task has to be skipped or
 * waited for.
 */
export const isQueuedClaim = ({ groups, slots, dedicated, except, contended = [] }: ClaimRequest): boolean =>
  slots.length === 0 &&
  dedicated.length === 0 &&
  except.length === 0 &&
  contended.length === 0 &&
  groups.every((group) => group.ownSlots !== null);

export interface QueuedClaim {
  readonly claimed: readonly ClaimedTask[];
  readonly heads: readonly DueTask[];
  /** Whether the claim found a task that only a full claim can handle. That task was left unclaimed. */
  readonly needsFull: boolean;
}

/** A claimed row. Its task is never exclusive, so columns such as `remote` are not needed. */
interface QueuedRow extends CommonColumns {
  /** The task's position among the due tasks of its group, counted from 1. */
  readonly nth: number;
  /** The next due task of the same group: its id, its `max`, and whether only a full claim can handle the task. */
  readonly next_id: string | number | null;
  readonly next_max: number;
  readonly next_needs_full: boolean | null;
}

/**
 * Queued claim: gives the first due tasks of groups to sessions that already have tasks of the same groups. It does the
 * same as `claimFull` with three quarters of the work. In each group it stops at the first task that is late, is
 * exclusive (must be alone in its session's queue), or belongs to a paused group.
 *
 * @throws lock_not_available if one of the rows is locked for longer than `lockTimeoutMs.brief`; then no task
 *   is claimed
 */
export async function claimQueued(client: Client, table: TaskTable, request: ClaimRequest): Promise<QueuedClaim> {
  const traced = request.traced === true;
  const { rows } = await client.query<QueuedRow>({
    name: traced ? "claim queued traced" : "claim queued",
    text: claimQueuedStatement(table, traced),
    values: [...groupColumns(request), ...slotColumns(request)],
  });
  const { heads, needsFull } = readHeads(request.groups, rows);
  return { claimed: rows.map((row) => buildTask(row, notExclusive)), heads, needsFull };
}

/** Finds the next head of each group: the first task that was not claimed. */
function readHeads(
  groups: ClaimRequest["groups"],
  rows: readonly QueuedRow[],
): Pick<QueuedClaim, "heads" | "needsFull"> {
  const last = new Map<number, QueuedRow>();
  const broken = new Set<number>();
  for (const row of rows) {
    // An earlier row of the group was changed in the meantime, and so was not claimed.
    if (row.nth !== (last.get(row.hash)?.nth ?? 0) + 1) broken.add(row.hash);
    if (!broken.has(row.hash)) last.set(row.hash, row);
  }
  const heads: DueTask[] = [];
  let needsFull = broken.size > 0;
  for (const { hash, max, id } of groups) {
    const row = last.get(hash);
    if (row === undefined) heads.push({ hash, max, id: String(id) });
    else if (row.next_id !== null) heads.push({ hash, max: row.next_max, id: String(row.next_id) });
    needsFull ||= row?.next_needs_full ?? row === undefined;
  }
  return { heads, needsFull };
}

const notExclusive = {
  startsNow: false,
  exclusive: false,
  hasGap: false,
  pauses: false,
  dedicated: false,
  save: false,
  remote: null,
  endsWithConnection: false,
  overlaps: false,
  key: null,
};

/**
 * SQL that lets the claim commit without waiting for the WAL flush, see `unflushed` in claimedTask.sql.ts. A claim of
 * remote tasks would have to wait for the flush, but they are exclusive and never part of a queued claim.
 */
const unflushed = "(SELECT set_config('synchronous_commit', 'off', true)) IS NOT NULL";

/** SQL that reads the first due tasks of group `g`. */
const firstDue = (table: TaskTable, from: string): string =>
  dueTasks(table, {
    columns: `id, ${maxOthers} AS max, "group", (${isLate()}) OR ${isExclusive(table)} AS needs_full`,
    where: `hash = ANY (ARRAY[g.hash]) AND ${from}`,
    limit: "g.most + 1",
  });

/**
 * Builds the statement. It uses `bool_or`, because PostgreSQL 15 cannot plan a filtered count over subqueries.
 */
function claimQueuedStatement(table: TaskTable, traced: boolean): string {
  const { qualified } = table;
  return `
UPDATE ${qualified} AS t SET ${assigned(table, "g")}
FROM (
  SELECT id, nth, next_id, next_max, next_needs_full, false AS starts_now,
    ($7::text[])[session] AS owner, ($8::integer[])[session] AS pid
  FROM (
    SELECT d.id, d.max, g.most, row_number() OVER in_order AS nth, ($9::integer[])[g.own + row_number() OVER in_order] AS session,
      bool_or(d.needs_full OR d.max < g.running - 1) OVER in_order AS needs_full,
      lead(d.id) OVER in_order AS next_id, lead(d.max) OVER in_order AS next_max, lead(d.needs_full) OVER in_order AS next_needs_full
    FROM unnest($1::integer[], $2::integer[], $3::integer[], $4::bigint[], $5::integer[], $6::integer[])
      AS g(hash, running, max, id, most, own)
    CROSS JOIN LATERAL (
      SELECT id, max, needs_full OR ${isGroupPaused(table, "f")} AS needs_full FROM (
        (${firstDue(table, `${maxOthers} = g.max AND id >= g.id`)})
        UNION ALL
        (${firstDue(table, `${maxOthers} < g.max`)})
        LIMIT g.most + 1
      ) AS f
    ) AS d
    WINDOW in_order AS (PARTITION BY g.hash ORDER BY d.max DESC, d.id ROWS UNBOUNDED PRECEDING)
  ) AS c
  WHERE nth <= most AND NOT needs_full
) AS g
WHERE ${hasId("g.id")} AND ${isReady} AND t.state::text = 'PLAN' AND t.plan <= now() AND NOT (${isExclusive(table)})
  AND ${limitsLockWait} AND ${unflushed}
RETURNING t.id, g.nth::integer, t.hash, ${maxOthers} AS max, t.owner, t.input, ${argumentsOf} AS args, t."group", t.header, t.string, t.delimiter::text, t.quote::text,
  t.escape::text, t."null", ${timeoutMs} AS timeout_ms, t.atomic, ${claimTime("t")} AS take, ${isRepeating("t.")} AS repeats, g.next_id, g.next_max, g.next_needs_full,
  ${traced ? traceContext : "NULL::text"} AS data, ${versionOf("t")} AS version, ${plannedTime} AS planned`;
}
