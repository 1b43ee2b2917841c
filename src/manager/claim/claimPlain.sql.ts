import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { barredColumns, dueTasks, isBarred, isLate, maxOthers } from "../schema/startRule.sql.js";
import {
  assigned,
  claimedColumns,
  forUsers,
  inLane,
  isExclusive,
  laneParameter,
  toTask,
  type ClaimedRow,
} from "../sql/claimedTask.sql.js";
import { hasId, isReady, limitsLockWait } from "../sql/fragments.sql.js";
import {
  allSlots,
  column,
  emptyClaim,
  firstOwnSlots,
  slotValues,
  type ClaimRequest,
  type ClaimResult,
} from "./claimFull.sql.js";

/**
 * Whether each task of a claim has its slot, and none has to be skipped or waited for: the tasks queue behind tasks of
 * their own group, or are the only one of their group, and there are enough slots for these.
 */
export function canBePlain(request: ClaimRequest): boolean {
  const { groups, slots, dedicated, except, contended = [], maxCandidates } = request;
  if (dedicated.length + except.length + contended.length > 0) return false;
  const sharing = groups.filter(({ ownSlots }) => ownSlots === null);
  return sharing.length <= Math.min(slots.length, maxCandidates) && sharing.every(({ maxTasks }) => maxTasks === 1);
}

interface PlainRow extends ClaimedRow {
  /** The position of the task among the due tasks of its group, counted from 1. */
  readonly nth: number;
  /** The task behind this one in its group. Null if there is none. */
  readonly next_id: string | number | null;
  readonly next_max: number;
}

/**
 * Plain claim: does what `claimFull` does with such a request, in about three quarters of the time. It claims nothing if
 * one of the tasks that it reads is exclusive, late or paused, or if the group limit forbids it. The tasks that share
 * `slots` get them in the order of their groups in the request.
 *
 * @returns null if it has claimed nothing
 * @throws lock_not_available if one of the rows is locked for longer than `lockTimeoutMs.brief`; then it has claimed
 *   nothing either
 */
export async function claimPlain(client: Client, table: TaskTable, request: ClaimRequest): Promise<ClaimResult | null> {
  const { groups, traced = false } = request;
  const { rows } = await client.query<PlainRow>({
    name: `claim plain${traced ? " traced" : ""}${forUsers(table)}`,
    text: claimPlainStatement(table, traced),
    values: [
      column(groups, "hash"),
      // A task that queues behind one of its own group starts when that one has ended.
      groups.map(({ running, ownSlots }) => running - (ownSlots === null ? 0 : 1)),
      column(groups, "max"),
      column(groups, "id").map(String),
      column(groups, "maxTasks"),
      firstSlots(request),
      ...slotValues(request),
      column(allSlots(request), "startsNow"),
      ...laneParameter(table, request.lane),
    ],
  });
  if (rows.length === 0) return null;
  return { ...emptyClaim, heads: readHeads(request, rows), claimed: rows.map(toTask) };
}

/** The number of slots before the first slot of each group. */
function firstSlots(request: ClaimRequest): number[] {
  let shared = 0;
  return firstOwnSlots(request).map((own) => own ?? shared++);
}

/**
 * Finds the next head of each group of which a task was claimed: the first task that was not. The rows come in the order
 * in which the tasks start. One is missing if another client has changed it while the claim waited for its row, so that
 * it became exclusive, for example. The next claim has to read it again.
 */
function readHeads({ groups }: ClaimRequest, rows: readonly PlainRow[]): ClaimResult["heads"] {
  const last = new Map<number, PlainRow | null>();
  for (const row of rows) {
    const before = last.get(row.hash);
    if (row.nth === (before?.nth ?? 0) + 1) last.set(row.hash, row);
    else if (before === undefined) last.set(row.hash, null);
  }
  return groups.flatMap(({ hash, ...first }) => {
    const row = last.get(hash);
    if (row === undefined || row?.next_id === null) return [];
    const { max, id } = row === null ? first : { max: row.next_max, id: row.next_id };
    return { id: String(id), hash, max, paused: false, gapMs: 0, exclusive: false };
  });
}

function claimPlainStatement(table: TaskTable, traced: boolean): string {
  const firstDue = (from: string): string =>
    dueTasks(table, {
      columns: `id, ${maxOthers} AS max, ${barredColumns(table)}, (${isLate()}) OR ${isExclusive(table)} AS needs_full`,
      where: `hash = ANY (ARRAY[g.hash]) AND ${from}${inLane(table, "$11")}`,
      limit: "g.most + 1",
    });
  return `
UPDATE ${table.qualified} AS t SET ${assigned(table)}
FROM (
  SELECT id, nth, next_id, next_max, ($10::boolean[])[slot] AS starts_now,
    ($7::text[])[($9::integer[])[slot]] AS owner, ($8::integer[])[($9::integer[])[slot]] AS pid
  FROM (
    SELECT d.id, nth::integer AS nth, nth <= g.most AS fits, g.before + nth AS slot, next_id, next_max,
      bool_or(d.needs_full OR nth <= g.most AND d.max < g.others) OVER () AS needs_full
    FROM unnest($1::integer[], $2::integer[], $3::integer[], $4::bigint[], $5::integer[], $6::integer[])
      AS g(hash, others, max, id, most, before)
    CROSS JOIN LATERAL (
      SELECT id, max, needs_full OR ${isBarred(table, "f", "false")} AS needs_full, row_number() OVER in_order AS nth,
        lead(id) OVER in_order AS next_id, lead(max) OVER in_order AS next_max
      FROM (
        (${firstDue(`${maxOthers} = g.max AND id >= g.id`)})
        UNION ALL
        (${firstDue(`${maxOthers} < g.max`)})
        LIMIT g.most + 1
      ) AS f
      WINDOW in_order AS (ORDER BY max DESC, id)
    ) AS d
  ) AS c
  WHERE fits AND NOT needs_full
) AS g
WHERE ${hasId("g.id")} AND ${isReady} AND t.state::text = 'PLAN' AND t.plan <= now() AND NOT (${isExclusive(table)})${inLane(table, "$11", "t.")}
  AND ${limitsLockWait} AND (SELECT set_config('synchronous_commit', 'off', true)) IS NOT NULL
RETURNING ${claimedColumns(table, traced)}, g.nth, g.next_id, g.next_max`;
}
