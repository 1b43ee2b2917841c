import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { arrayLiteral } from "../../shared/postgres/arrayText.js";
import {
  assigned,
  claimedColumns,
  forUsers,
  inLane,
  isExclusive,
  laneNames,
  laneParameter,
  toTask,
  unflushed,
  type ClaimedRow,
} from "../sql/claimedTask.sql.js";
import type { ClaimedTask, DedicatedSession, DueTask, QueueSlot } from "../model/tasks.js";
import { hasId, isReady } from "../sql/fragments.sql.js";
import {
  barredColumns,
  dueTasks,
  gapMs,
  isBarred,
  isKeyFree,
  isLate,
  keyParameter,
  maxOthers,
} from "../schema/startRule.sql.js";

export interface ClaimResult {
  readonly claimed: readonly ClaimedTask[];
  /** Late tasks that the claim has read. They are not claimed and expire afterwards. */
  readonly late: readonly DueTask[];
  /** How many of the tasks that were read could start but got no slot. */
  readonly more: number;
  /** Hashes of the groups of these tasks. */
  readonly moreOf: ReadonlySet<number>;
  /** How many of the tasks that got no slot are exclusive (must be alone in a session's queue). */
  readonly exclusive: number;
  readonly locked: readonly DueTask[];
  /** The next head (first due task) of each group in which the claim read one. */
  readonly heads: readonly (DueTask & {
    readonly paused: boolean;
    readonly gapMs: number;
    readonly exclusive: boolean;
  })[];
}

export const emptyClaim: ClaimResult = {
  claimed: [],
  late: [],
  locked: [],
  heads: [],
  more: 0,
  moreOf: new Set(),
  exclusive: 0,
};

export interface ClaimConditions {
  readonly except: readonly string[];
  /** Ids of contended tasks. If one of them is chosen, a full claim waits for its row. */
  readonly contended?: readonly string[];
  /** Keys of the tasks that run. Tasks with one of these keys are skipped. */
  readonly runningKeys?: readonly string[];
  /** Whether to return the column `data`. */
  readonly traced?: boolean;
  /** With users: only tasks of this lane are claimed. */
  readonly lane?: string | null;
}

interface ClaimedGroup {
  readonly hash: number;
  readonly running: number;
  /** How long no task of the group has started, in ms. A task with a longer gap is not claimed. -1 for no such task. */
  readonly quietMs: number;
  /** Where reading starts in the group: at its head. */
  readonly max: number;
  readonly id: bigint;
  readonly maxTasks: number;
  /** Slots in sessions that already have tasks of the group. Null if the group competes for the shared slots. */
  readonly ownSlots: readonly QueueSlot[] | null;
}

export interface ClaimRequest extends ClaimConditions {
  readonly groups: readonly ClaimedGroup[];
  /** Slots shared by all groups that have no slots of their own, best slot first. */
  readonly slots: readonly QueueSlot[];
  readonly dedicated: readonly DedicatedSession[];
  /** Maximum number of tasks, the best of these groups, that compete for the shared slots and dedicated sessions. */
  readonly maxCandidates: number;
}

interface ClaimRow extends ClaimedRow {
  readonly kind: "claimed" | "late" | "more" | "exclusive" | "locked" | "head";
  readonly gap_ms: number;
  readonly paused: boolean;
}

/**
 * Full claim: gives due tasks of the requested groups to sessions, in the order of their priority: `max` minus the number
 * of running tasks of the group, then the smallest id. Locked rows are skipped, except one of a contended task.
 *
 * A group can have its own slots, in sessions that already have tasks of the group. Then the first due tasks of the
 * group get these slots, in order. Each of these tasks starts when the task before it in its session has ended. At that
 * time, one task fewer of the group is running, and the check of the group limit takes that into account. At the first
 * exclusive task (one that must be alone in its session's queue) the group gets no further tasks.
 *
 * All other groups share `slots`. An exclusive task needs a slot in an empty queue, and nothing is queued behind it.
 * Once a task of a group finds no slot, the later tasks of that group get no slot either. A dedicated session, which
 * stays with one group, gets a task of its group if the task's `count` and `live` allow that.
 *
 * A task whose key runs is skipped, and the later tasks of its group can start. No other task can wait with the same
 * key, so the claim never takes two tasks with one key.
 *
 * A task with a gap is claimed only if it is the first one of its group and no task of the group has started for that
 * long. The tasks behind it are left to later claims.
 *
 * The claim waits for the row of at most one contended task, and before it locks any other row. So no deadlock can arise.
 *
 * Each group is read from its head. Tasks that were claimed and finished earlier therefore cost nothing, even while an
 * old snapshot keeps the server from removing their index entries.
 */
export async function claimFull(client: Client, table: TaskTable, request: ClaimRequest): Promise<ClaimResult> {
  const { groups, slots, dedicated, traced = false } = request;
  const { rows } = await client.query<ClaimRow>({
    name: `claim${traced ? " traced" : ""}${forUsers(table)}`,
    text: claimStatement(table, traced),
    values: [
      column(groups, "hash"),
      column(groups, "running"),
      column(groups, "max"),
      column(groups, "id").map(String),
      column(groups, "maxTasks"),
      firstOwnSlots(request),
      ...slotValues(request),
      column(allSlots(request), "startsNow"),
      slots.length,
      request.maxCandidates,
      request.except,
      column(dedicated, "owner"),
      column(dedicated, "pid"),
      column(dedicated, "hash"),
      column(dedicated, "ran"),
      column(dedicated, "ageMs"),
      request.contended ?? [],
      ...keyParameter(table, request.runningKeys ?? []),
      column(groups, "quietMs"),
      ...laneParameter(table, request.lane),
    ],
  });
  return toClaim(rows);
}

/** The index of each group's first own slot in `allSlots`. Null if it has none. */
export function firstOwnSlots({ groups, slots }: ClaimRequest): (number | null)[] {
  let next = slots.length;
  return groups.map(({ ownSlots }) => {
    if (ownSlots === null) return null;
    next += ownSlots.length;
    return next - ownSlots.length;
  });
}

/** The values of $7 to $9: the sessions, and the number of the session of each slot, counted from 1. */
export function slotValues(request: ClaimRequest): unknown[] {
  const owners = new Map<string, number>();
  const pids: number[] = [];
  const numbers = allSlots(request).map(({ owner, pid }) => {
    // `push` returns the new length, which is the number of a session that is new here.
    const number = owners.get(owner) ?? pids.push(pid);
    owners.set(owner, number);
    return number;
  });
  return [[...owners.keys()], pids, arrayLiteral(numbers)];
}

/** The shared slots, and then the slots of each group. */
export const allSlots = ({ groups, slots }: Pick<ClaimRequest, "groups" | "slots">): QueueSlot[] => [
  ...slots,
  ...groups.flatMap(({ ownSlots }) => ownSlots ?? []),
];

export const column = <Row, Name extends keyof Row>(rows: readonly Row[], name: Name): Row[Name][] =>
  rows.map((row) => row[name]);

function toClaim(rows: readonly ClaimRow[]): ClaimResult {
  const claimed: ClaimedTask[] = [];
  const late: DueTask[] = [];
  const locked: DueTask[] = [];
  const heads: ClaimResult["heads"][number][] = [];
  const moreOf = new Set<number>();
  let [more, exclusive] = [0, 0];
  for (const row of rows) {
    if (row.kind === "claimed") {
      claimed.push(toTask(row));
      continue;
    }
    const { kind, id, hash, max } = row;
    if (kind === "more" || kind === "exclusive") {
      moreOf.add(hash);
      more += 1;
      if (kind === "exclusive") exclusive += 1;
      continue;
    }
    const due = { id: String(id), hash, max };
    if (kind === "late") late.push(due);
    else if (kind === "locked") locked.push(due);
    else heads.push({ ...due, paused: row.paused, gapMs: row.gap_ms, exclusive: row.exclusive });
  }
  return { claimed, late, locked, heads, more, moreOf, exclusive };
}

/** SQL that reads the first due tasks of group `g`. */
const firstDue = (table: TaskTable, from: string): string =>
  dueTasks(table, {
    columns: `id, count, live, ${maxOthers} AS max, ${barredColumns(table)}, ${isLate()} AS late, ${isExclusive(table)} AS exclusive, ${gapMs()} AS gap_ms`,
    where: `hash = ANY (ARRAY[g.hash]) AND ${from}${inLane(table, lastParameter(table))}`,
    except: "$13",
    keys: "$20",
    limit: "g.most + 1",
  });

const lastParameter = ({ hasKeys }: TaskTable): string => (hasKeys ? "$22" : "$21");

/** SQL: a candidate can get a shared slot. */
const startable = (c: string): string =>
  `${c}.own IS NULL AND ${c}.near AND ${c}.priority >= 0 AND NOT ${c}.late AND NOT ${c}.paused AND ${c}.may_start`;

/**
 * SQL: the CTE `part` contains the id. The planner hashes the subquery, so a lookup is cheap. In an array of a thousand, a
 * thousand lookups would cost a million comparisons, and for a join the planner would rely on its row estimates.
 */
const is = (id: string, part: string): string => `(${id} IN (SELECT id FROM ${part})) IS TRUE`;
const isNot = (id: string, part: string): string => `(${id} IN (SELECT id FROM ${part})) IS NOT TRUE`;

function claimStatement(table: TaskTable, traced: boolean): string {
  const { qualified } = table;
  const quietParameter = table.hasKeys ? "$21" : "$20";
  const lockable = `${isReady} AND state::text = 'PLAN' AND plan <= now() AND ${isKeyFree(table, "$20")}${inLane(table, lastParameter(table))}`;
  return `
WITH candidate AS MATERIALIZED (
  SELECT c.*, ${isBarred(table, "c", "c.late")} AS paused, c.nth <= c.most AS near,
    c.max - c.running - c.nth + 1 AS priority, c.gapped = 0 OR c.nth = 1 AND c.gap_ms <= c.quiet AS may_start
  FROM (
    SELECT g.hash, g.own, g.running, g.most, d.*, count(*) FILTER (WHERE NOT d.late) OVER before + 1 AS nth,
      count(*) FILTER (WHERE d.exclusive AND NOT d.late) OVER before + d.exclusive::integer AS barred,
      g.quiet, count(*) FILTER (WHERE d.gap_ms > 0 AND NOT d.late) OVER before + (d.gap_ms > 0)::integer AS gapped
    FROM unnest($1::integer[], $2::integer[], $3::integer[], $4::bigint[], $5::integer[], $6::integer[], ${quietParameter}::float8[])
      AS g(hash, running, max, id, most, own, quiet)
    CROSS JOIN LATERAL (
      (${firstDue(table, `${maxOthers} = g.max AND id >= g.id`)})
      UNION ALL
      (${firstDue(table, `${maxOthers} < g.max`)})
      LIMIT g.most + 1
    ) AS d
    WINDOW before AS (PARTITION BY g.hash ORDER BY d.max DESC, d.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
  ) AS c
), ranked AS MATERIALIZED (
  SELECT id, hash, count, live, exclusive, row_number() OVER (ORDER BY priority DESC, id) AS rank
  FROM candidate WHERE ${startable("candidate")}
  ORDER BY priority DESC, id LIMIT $12
), session AS (
  SELECT s.*, row_number() OVER (PARTITION BY s.hash ORDER BY s.rank) AS nth
  FROM unnest($14::text[], $15::integer[], $16::integer[], $17::integer[], $18::float8[])
    WITH ORDINALITY AS s(owner, pid, hash, ran, age, rank)
), for_dedicated AS MATERIALIZED (
  SELECT c.id, s.owner, s.pid FROM (
    SELECT id, hash, count, live, row_number() OVER (PARTITION BY hash ORDER BY rank) AS nth FROM ranked
  ) AS c JOIN session AS s ON s.hash = c.hash AND s.nth = c.nth
  WHERE (c.count > 0 OR c.live > interval '0') AND (c.count = 0 OR s.ran < c.count)
    AND (c.live = interval '0' OR s.age < extract(epoch FROM c.live) * 1000)
), for_shared AS MATERIALIZED (
  SELECT r.id, r.hash, r.rank, r.exclusive, CASE WHEN r.at <= $11 THEN ($9::integer[])[r.at] END AS session,
    r.at <= $11 AND ($10::boolean[])[r.at] AS starts_now
  FROM (
    SELECT *, row_number() OVER (ORDER BY rank)::integer AS at
    FROM ranked WHERE ${isNot("id", "for_dedicated")}
  ) AS r
), assigned AS MATERIALIZED (
  SELECT id, owner, pid, true AS starts_now FROM for_dedicated
  UNION ALL
  SELECT id, ($7::text[])[session], ($8::integer[])[session], starts_now
  FROM (
    SELECT f.*, bool_and(f.session IS NOT NULL AND (f.starts_now OR NOT f.exclusive
      AND f.session NOT IN (SELECT session FROM for_shared WHERE starts_now AND exclusive)
    )) OVER (PARTITION BY f.hash ORDER BY f.rank) AS goes FROM for_shared AS f
  ) AS f
  WHERE goes
  UNION ALL
  SELECT id, ($7::text[])[($9::integer[])[own + nth]], ($8::integer[])[($9::integer[])[own + nth]],
    ($10::boolean[])[own + nth]
  FROM candidate WHERE own IS NOT NULL AND near AND barred = 0 AND max >= running - 1 AND NOT late AND NOT paused
), locked AS MATERIALIZED (
  SELECT id FROM (
    SELECT id FROM ${qualified}
    WHERE id = ANY (ARRAY(SELECT id FROM assigned WHERE id = ANY ($19::bigint[]) LIMIT 1)) AND ${lockable}
    FOR NO KEY UPDATE
  ) AS waited_for
  UNION ALL
  SELECT id FROM (
    SELECT id FROM ${qualified} WHERE id = ANY (ARRAY(SELECT id FROM assigned)) AND ${lockable}
    FOR NO KEY UPDATE SKIP LOCKED
  ) AS free
), claimed AS (
  UPDATE ${qualified} AS t SET ${assigned(table)}
  FROM assigned AS g
  WHERE ${hasId("g.id")} AND ${is("g.id", "locked")}
  RETURNING ${claimedColumns(table, traced)}
), unclaimed AS MATERIALIZED (
  SELECT CASE WHEN c.late AND NOT c.paused THEN 'late'
      WHEN ${is("c.id", "assigned")} THEN 'locked'
      WHEN NOT (${startable("c")}) OR ${isNot("c.id", "for_shared")} THEN 'not yet'
      WHEN c.exclusive THEN 'exclusive' ELSE 'more'
    END AS kind, c.id, c.hash, c.max, c.exclusive, c.gap_ms, c.paused
  FROM candidate AS c WHERE ${isNot("c.id", "claimed")}
)
SELECT 'claimed' AS kind, 0 AS gap_ms, false AS paused, * FROM claimed
WHERE (SELECT ${unflushed} FROM claimed) IS NOT NULL
UNION ALL
SELECT o.kind, o.gap_ms, o.paused, o.id, o.hash, o.max, o.exclusive, c."reportsStart", c.owner, c.input, c.args, c.results, c."group", c."timeoutMs",
  c.header, c.string, c.delimiter, c.quote, c.escape, c."null", c.dedicated, c.save, c.remote, c."endsWithConnection", c.atomic, c."claimedAt",
  c."mayPause", c."endsPlainly", c.overlaps, c."startsNow", c.data, c.version, c.key, c.planned${laneNames(table)}
FROM (
  SELECT * FROM unclaimed WHERE kind IN ('late', 'locked', 'more', 'exclusive')
  UNION ALL
  (SELECT DISTINCT ON (hash) 'head', id, hash, max, exclusive, gap_ms, paused
  FROM unclaimed WHERE kind IN ('more', 'exclusive', 'not yet') ORDER BY hash, max DESC, id)
) AS o LEFT JOIN claimed AS c ON false`;
}
