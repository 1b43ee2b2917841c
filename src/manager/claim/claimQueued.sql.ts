import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { byId, isReady } from "../sql/byId.js";
import { groupColumns, slotColumns, type ClaimRequest, type DueTask } from "./claimFull.sql.js";
import {
  alone,
  assigned,
  mayChangeMax,
  traceContext,
  versionOf,
  type ClaimedRow,
  type ClaimedTask,
} from "./claimedTask.sql.js";
import { beside, groupPaused } from "../sql/head.js";
import { lockWait } from "../sql/lockWait.js";
import { heldBack } from "../sql/pauseGroup.sql.js";
import { takenAt } from "../sql/takenAt.js";
import { tooLate } from "../sql/tooLate.js";

/** Whether all that it asks for is to wait behind tasks of its own group, and nothing is to be left out. */
export const isQueuedClaim = ({ groups, places, kept, except }: ClaimRequest): boolean =>
  places.length === 0 &&
  kept.length === 0 &&
  except.length === 0 &&
  groups.every((group) => group.places !== null);

/** What `claim` says as well, as far as it can come about. */
export interface QueuedClaim {
  readonly claimed: readonly ClaimedTask[];
  readonly heads: readonly DueTask[];
  /** Whether it met, and left, something that only `claim` knows how to treat. */
  readonly odd: boolean;
}

/** A task that need not be alone: it has no timeout, no count and no live, its group no pause. */
interface BehindRow extends Pick<
  ClaimedRow,
  | "id"
  | "hash"
  | "max"
  | "owner"
  | "input"
  | "group"
  | "header"
  | "string"
  | "delimiter"
  | "quote"
  | "escape"
  | "null"
  | "atomic"
  | "take"
  | "repeats"
  | "data"
  | "version"
> {
  /** Which of its group's due tasks it is, from 1. */
  readonly nth: number;
  /** The one that comes next in its group. */
  readonly next_id: string | number | null;
  readonly next_max: number;
  readonly next_odd: boolean | null;
}

/**
 * Gives the first due tasks of groups to sessions that have tasks of theirs, as `claim` does, with three
 * quarters of the work: as far as they are not late, need not be alone, and are of no paused group.
 *
 * @throws lock_not_available when somebody has locked one of the rows for longer than `lockWaitMs`: then
 *   none is claimed.
 */
export async function claimQueued(
  client: Client,
  table: TaskTable,
  request: ClaimRequest,
): Promise<QueuedClaim> {
  const traced = request.traced === true;
  const { rows } = await client.query<BehindRow>({
    name: traced ? "claim behind traced" : "claim behind",
    text: claimBehindStatement(table, traced),
    values: [...groupColumns(request), ...slotColumns(request)],
  });
  const { heads, odd } = readHeads(request.groups, rows);
  return { claimed: rows.map(toTask), heads, odd };
}

/** What comes next in each group: the first that was not claimed, as far as it has looked. */
function readHeads(
  groups: ClaimRequest["groups"],
  rows: readonly BehindRow[],
): Pick<QueuedClaim, "heads" | "odd"> {
  const last = new Map<number, BehindRow>();
  const broken = new Set<number>();
  for (const row of rows) {
    // One before it was changed by somebody meanwhile.
    if (row.nth !== (last.get(row.hash)?.nth ?? 0) + 1) broken.add(row.hash);
    if (!broken.has(row.hash)) last.set(row.hash, row);
  }
  const heads: DueTask[] = [];
  let odd = broken.size > 0;
  for (const { hash, max, id } of groups) {
    const row = last.get(hash);
    if (row === undefined) heads.push({ hash, max, id: String(id) });
    else if (row.next_id !== null) heads.push({ hash, max: row.next_max, id: String(row.next_id) });
    odd ||= row?.next_odd ?? row === undefined;
  }
  return { heads, odd };
}

/** Each by its name: copying whole rows costs more than all the rest here. */
function toTask(row: BehindRow): ClaimedTask {
  const { owner, hash, max, input, group, header, string, delimiter, quote, escape } = row;
  return {
    id: String(row.id),
    owner,
    hash,
    max,
    front: false,
    alone: false,
    pauses: mayChangeMax(input),
    repeats: row.repeats,
    input,
    group,
    timeoutMs: 0,
    keep: false,
    save: false,
    format: { header, string, delimiter, quote, escape, null: row.null },
    atomic: row.atomic,
    take: row.take,
    remote: null,
    data: row.data,
    version: row.version,
  };
}

/** As for `claim`, of which none of these is on another server. */
const unflushed = "(SELECT set_config('synchronous_commit', 'off', true)) IS NOT NULL";

/** As in `claim`, so that the same index serves. */
function firstDue({ qualified }: TaskTable, from: string): string {
  return `
        SELECT id, ${beside} AS max, "group", (${tooLate}) OR ${alone} AS odd
        FROM ${qualified} WHERE ready AND hash = ANY (ARRAY[g.hash]) AND ${from}
          AND plan <= now() AND id <> ALL (${heldBack})
        ORDER BY hash, ${beside} DESC, id LIMIT g.most + 1`;
}

/** PostgreSQL 15 cannot plan a comparison with a count of what subqueries say up to a row; hence `bool_or`. */
function claimBehindStatement(table: TaskTable, traced: boolean): string {
  const { qualified } = table;
  return `
UPDATE ${qualified} AS t SET ${assigned(table, "g")}
FROM (
  SELECT id, nth, next_id, next_max, next_odd, false AS front,
    ($7::text[])[session] AS owner, ($8::integer[])[session] AS pid
  FROM (
    SELECT d.id, d.max, g.most, row_number() OVER way AS nth, ($9::integer[])[g.own + row_number() OVER way] AS session,
      bool_or(d.odd OR d.max < g.running - 1) OVER way AS odd,
      lead(d.id) OVER way AS next_id, lead(d.max) OVER way AS next_max, lead(d.odd) OVER way AS next_odd
    FROM unnest($1::integer[], $2::integer[], $3::integer[], $4::bigint[], $5::integer[], $6::integer[])
      AS g(hash, running, max, id, most, own)
    CROSS JOIN LATERAL (
      SELECT id, max, odd OR ${groupPaused(table, "f")} AS odd FROM (
        (${firstDue(table, `${beside} = g.max AND id >= g.id`)})
        UNION ALL
        (${firstDue(table, `${beside} < g.max`)})
        LIMIT g.most + 1
      ) AS f
    ) AS d
    WINDOW way AS (PARTITION BY g.hash ORDER BY d.max DESC, d.id ROWS UNBOUNDED PRECEDING)
  ) AS c
  WHERE nth <= most AND NOT odd
) AS g
WHERE ${byId("g.id")} AND ${isReady} AND t.state::text = 'PLAN' AND t.plan <= now() AND NOT (${alone})
  AND ${lockWait} AND ${unflushed}
RETURNING t.id, g.nth::integer, t.hash, ${beside} AS max, t.owner, t.input, t."group", t.header, t.string, t.delimiter::text, t.quote::text,
  t.escape::text, t."null", t.atomic, ${takenAt("t")} AS take, t.repeat > interval '0' AS repeats, g.next_id, g.next_max, g.next_odd,
  ${traced ? traceContext : "NULL::text"} AS data, ${versionOf("t")} AS version`;
}
