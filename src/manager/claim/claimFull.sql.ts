import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import { arrayOf } from "../../shared/postgres/arrayText.js";
import { byId, isNoneOf, isReady } from "../sql/byId.js";
import {
  alone,
  assigned,
  claimedColumns,
  toTask,
  unflushed,
  type ClaimedRow,
  type ClaimedTask,
} from "./claimedTask.sql.js";
import { beside, groupPaused } from "../sql/head.js";
import { heldBack } from "../sql/pauseGroup.sql.js";
import { tooLate } from "../sql/tooLate.js";

/** A due task that was not given away. */
export interface DueTask {
  readonly id: string;
  readonly hash: number;
  readonly max: number;
}

export interface ClaimResult {
  readonly claimed: readonly ClaimedTask[];
  /** Due tasks it met that are not worth running any more. */
  readonly gone: readonly DueTask[];
  /** How many of those it looked at could start but found no place. */
  readonly more: number;
  /** Hashes of their groups. */
  readonly moreOf: ReadonlySet<number>;
  /** How many of those need a session that has nothing else. */
  readonly alone: number;
  /** Due tasks passed over since somebody holds their row: offer them again later. */
  readonly locked: readonly DueTask[];
  /** The first due task that is left of each group, as far as it has looked. */
  readonly heads: readonly (DueTask & { readonly paused: boolean })[];
}

/** A session as a claim sees it. */
export interface ClaimingSession {
  readonly owner: string;
  readonly pid: number;
}

/** A session that runs several tasks of one group, as far as their count and live let it. */
export interface KeptSession extends ClaimingSession {
  readonly hash: number;
  /** How many tasks it has run. */
  readonly ran: number;
  /** How long ago its first task started, in ms. */
  readonly ageMs: number;
}

/** A place in a session's queue. */
export interface QueueSlot extends ClaimingSession {
  /** Whether it is the front of an empty queue: its task starts at once. */
  readonly front: boolean;
}

/** A group to take tasks of. */
export interface ClaimedGroup {
  readonly hash: number;
  /** How many sessions have tasks of it. */
  readonly running: number;
  /** Where to begin: nothing before this is due, in the order of larger max, then smaller id. */
  readonly max: number;
  readonly id: bigint;
  /** How many of its tasks may start at most, or find a place of its own. */
  readonly most: number;
  /** Places of its own, in sessions that have tasks of it; null when it takes part in the places for all. */
  readonly places: readonly QueueSlot[] | null;
}

export interface ClaimRequest {
  readonly groups: readonly ClaimedGroup[];
  /** For the tasks of all groups without places of their own, best first. */
  readonly places: readonly QueueSlot[];
  readonly kept: readonly KeptSession[];
  /** How many tasks of such groups to look at in all. */
  readonly look: number;
  /** Tasks not to look at this time. */
  readonly except: readonly string[];
  /** Whether `data` is wanted. */
  readonly traced?: boolean;
}

/** A row of a claim's answer. */
export interface ClaimRow extends ClaimedRow {
  readonly kind: "claimed" | "gone" | "more" | "alone" | "locked" | "head";
  readonly paused: boolean;
}

/**
 * Gives due tasks of chosen groups to sessions: those with the larger `max` minus running in their
 * group first, then the smaller id. Rows that somebody has locked are passed over.
 *
 * Of a group with places of its own the first due tasks get them, one behind the other: they start
 * when those before them in their sessions have ended, so that only the other sessions count. A task
 * that has to be alone in its session ends that row.
 *
 * All other groups share `places`. A task that has to be alone needs the front of one, and nothing
 * goes behind it; those of its group that come after one which found no such place wait as well. A
 * session that stays with a group gets a task of it whose own count and live allow that.
 *
 * Of each group the rows are read from where its last claim ended, so that what was claimed and
 * finished before costs nothing even while a snapshot is held open.
 */
export async function claimFull(
  client: Client,
  table: TaskTable,
  request: ClaimRequest,
): Promise<ClaimResult> {
  const { kept } = request;
  const { rows } = await client.query<ClaimRow>({
    name: request.traced === true ? "claim traced" : "claim",
    text: claimStatement(table, request.traced === true),
    values: [
      ...groupColumns(request),
      ...slotColumns(request),
      placesOf(request).map((place) => place.front),
      request.places.length,
      request.look,
      request.except,
      kept.map((session) => session.owner),
      kept.map((session) => session.pid),
      kept.map((session) => session.hash),
      kept.map((session) => session.ran),
      kept.map((session) => session.ageMs),
    ],
  });
  return toClaim(rows);
}

/** Each group's hash, running, max, id, most, and how many places there are before its own; null without. */
export function groupColumns({ groups, places }: ClaimRequest): unknown[][] {
  let from = places.length;
  const own = groups.map((group) => {
    const first = from;
    from += group.places?.length ?? 0;
    return group.places === null ? null : first;
  });
  return [
    groups.map((group) => group.hash),
    groups.map((group) => group.running),
    groups.map((group) => group.max),
    groups.map((group) => String(group.id)),
    groups.map((group) => group.most),
    own,
  ];
}

/** Those for all groups, then each group's own. */
const placesOf = ({ groups, places }: ClaimRequest): QueueSlot[] => [
  ...places,
  ...groups.flatMap((group) => group.places ?? []),
];

/** The sessions' owners and pids, and for each place which of these it is, from 1. */
export function slotColumns(request: ClaimRequest): unknown[] {
  const sessions = new Map<string, { readonly pid: number; readonly number: number }>();
  const numbers = placesOf(request).map(({ owner, pid }) => {
    let session = sessions.get(owner);
    if (session === undefined) {
      session = { pid, number: sessions.size + 1 };
      sessions.set(owner, session);
    }
    return session.number;
  });
  return [[...sessions.keys()], [...sessions.values()].map(({ pid }) => pid), arrayOf(numbers)];
}

/** Parts the rows by what they are. */
export function toClaim(rows: readonly ClaimRow[]): ClaimResult {
  const of = (kind: ClaimRow["kind"]) => rows.filter((row) => row.kind === kind);
  const more = rows.filter(({ kind }) => kind === "more" || kind === "alone");
  const due = ({ id, hash, max }: ClaimRow): DueTask => ({ id: String(id), hash, max });
  return {
    claimed: of("claimed").map(toTask),
    gone: of("gone").map(due),
    more: more.length,
    moreOf: new Set(more.map(({ hash }) => hash)),
    alone: of("alone").length,
    locked: of("locked").map(due),
    heads: of("head").map((row) => ({ ...due(row), paused: row.paused })),
  };
}

/**
 * The hash is compared as an array's element, which keeps it in the order that is asked for: so only
 * the index that has that order serves, however few rows the planner believes there are.
 */
function firstDue({ qualified }: TaskTable, from: string): string {
  return `
      SELECT id, count, live, ${beside} AS max, "group", ${tooLate} AS gone, ${alone} AS alone
      FROM ${qualified} WHERE ready AND hash = ANY (ARRAY[g.hash]) AND ${from}
        AND plan <= now() AND ${isNoneOf("id", "$13")} AND id <> ALL (${heldBack})
      ORDER BY hash, ${beside} DESC, id LIMIT g.most + 1`;
}

/** SQL of whether a candidate may start in the places for all. */
const startable = (c: string): string =>
  `${c}.own IS NULL AND ${c}.near AND ${c}.priority >= 0 AND NOT ${c}.gone AND NOT ${c}.paused`;

/**
 * Looked up in a table of hashes: as an array a thousand of them would cost a million comparisons, and
 * as a join it would be the planner's guess.
 */
const is = (id: string, part: string): string => `(${id} IN (SELECT id FROM ${part})) IS TRUE`;
const isNot = (id: string, part: string): string =>
  `(${id} IN (SELECT id FROM ${part})) IS NOT TRUE`;

function claimStatement(table: TaskTable, traced: boolean): string {
  const { qualified } = table;
  return `
WITH candidate AS MATERIALIZED (
  SELECT c.*, ${groupPaused(table, "c")} AS paused, c.nth <= c.most AS near,
    c.max - c.running - c.nth + 1 AS priority
  FROM (
    SELECT g.hash, g.own, g.running, g.most, d.*, count(*) FILTER (WHERE NOT d.gone) OVER before + 1 AS nth,
      count(*) FILTER (WHERE d.alone AND NOT d.gone) OVER before + d.alone::integer AS barred
    FROM unnest($1::integer[], $2::integer[], $3::integer[], $4::bigint[], $5::integer[], $6::integer[])
      AS g(hash, running, max, id, most, own)
    CROSS JOIN LATERAL (
      (${firstDue(table, `${beside} = g.max AND id >= g.id`)})
      UNION ALL
      (${firstDue(table, `${beside} < g.max`)})
      LIMIT g.most + 1
    ) AS d
    WINDOW before AS (PARTITION BY g.hash ORDER BY d.max DESC, d.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
  ) AS c
), ranked AS MATERIALIZED (
  SELECT id, hash, count, live, alone, row_number() OVER (ORDER BY priority DESC, id) AS place
  FROM candidate WHERE ${startable("candidate")}
  ORDER BY priority DESC, id LIMIT $12
), session AS (
  SELECT s.*, row_number() OVER (PARTITION BY s.hash ORDER BY s.place) AS nth
  FROM unnest($14::text[], $15::integer[], $16::integer[], $17::integer[], $18::float8[])
    WITH ORDINALITY AS s(owner, pid, hash, ran, age, place)
), kept AS MATERIALIZED (
  SELECT c.id, s.owner, s.pid FROM (
    SELECT id, hash, count, live, row_number() OVER (PARTITION BY hash ORDER BY place) AS nth FROM ranked
  ) AS c JOIN session AS s ON s.hash = c.hash AND s.nth = c.nth
  WHERE (c.count > 0 OR c.live > interval '0') AND (c.count = 0 OR s.ran < c.count)
    AND (c.live = interval '0' OR s.age < extract(epoch FROM c.live) * 1000)
), fresh AS MATERIALIZED (
  SELECT r.id, r.hash, r.place, r.alone, CASE WHEN r.at <= $11 THEN ($9::integer[])[r.at] END AS session,
    r.at <= $11 AND ($10::boolean[])[r.at] AS front
  FROM (
    SELECT *, row_number() OVER (ORDER BY place)::integer AS at
    FROM ranked WHERE ${isNot("id", "kept")}
  ) AS r
), given AS MATERIALIZED (
  SELECT id, owner, pid, true AS front FROM kept
  UNION ALL
  SELECT id, ($7::text[])[session], ($8::integer[])[session], front
  FROM (
    SELECT f.*, bool_and(f.session IS NOT NULL AND (f.front OR NOT f.alone
      AND f.session NOT IN (SELECT session FROM fresh WHERE front AND alone)
    )) OVER (PARTITION BY f.hash ORDER BY f.place) AS goes FROM fresh AS f
  ) AS f
  WHERE goes
  UNION ALL
  SELECT id, ($7::text[])[($9::integer[])[own + nth]], ($8::integer[])[($9::integer[])[own + nth]],
    ($10::boolean[])[own + nth]
  FROM candidate WHERE own IS NOT NULL AND near AND barred = 0 AND max >= running - 1 AND NOT gone AND NOT paused
), locked AS MATERIALIZED (
  SELECT id FROM ${qualified}
  WHERE id = ANY (ARRAY(SELECT id FROM given)) AND ${isReady} AND state::text = 'PLAN' AND plan <= now()
  FOR NO KEY UPDATE SKIP LOCKED
), claimed AS (
  UPDATE ${qualified} AS t SET ${assigned(table, "g")}
  FROM given AS g
  WHERE ${byId("g.id")} AND ${is("g.id", "locked")}
  RETURNING ${claimedColumns("g", traced)}
), left_over AS MATERIALIZED (
  SELECT CASE WHEN c.gone THEN 'gone'
      WHEN ${is("c.id", "given")} THEN 'locked'
      WHEN NOT (${startable("c")}) OR ${isNot("c.id", "fresh")} THEN 'not yet'
      WHEN c.alone THEN 'alone' ELSE 'more'
    END AS kind, c.id, c.hash, c.max, c.alone, c.paused
  FROM candidate AS c WHERE ${isNot("c.id", "claimed")}
)
SELECT 'claimed' AS kind, *, false AS paused FROM claimed
WHERE (SELECT ${unflushed} FROM claimed) IS NOT NULL
UNION ALL
SELECT o.kind, o.id, o.hash, o.max, o.alone, c.owner, c.input, c."group", c.timeout_ms, c.header, c.string, c.delimiter,
  c.quote, c.escape, c."null", c.keep, c.save, c.remote, c.atomic, c.take, c.pauses, c.repeats, c.front, c.data, c.version, o.paused
FROM (
  SELECT * FROM left_over WHERE kind IN ('gone', 'locked', 'more', 'alone')
  UNION ALL
  (SELECT DISTINCT ON (hash) 'head', id, hash, max, alone, paused
  FROM left_over WHERE kind IN ('more', 'alone', 'not yet') ORDER BY hash, max DESC, id)
) AS o LEFT JOIN claimed AS c ON false`;
}
