import { queryOne } from "../queryOne.js";
import { groupHeads } from "../../manager/schema/startRule.sql.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { dueOrderSql, isDueSql, isPlannedSql, isoTimeSql, millisecondsSql } from "../sqlFragments.js";
import { atLeast, exactly, sumOf, type Count } from "../../shared/count.js";
import { isCountable, maxCounted } from "./counts.js";
import { readSessions, groupsAsShown } from "./executorSessions.js";

/** A group that has running, waiting or recently ended tasks, or that is paused. */
export interface Group {
  readonly group: string;
  /** Number of sessions that run tasks of the group. */
  readonly running: number;
  readonly waiting: Count;
  readonly due: Count;
  /** The earliest planned time of the tasks in PLAN that were read; if it has come, how long ago, in ms. */
  readonly oldest: string | null;
  readonly oldestDueMs: number | null;
  /** Whether the group or the whole table is paused. */
  readonly paused: boolean;
  /** The longest gap among the tasks in PLAN that were read, in ms. 0 if none of them has a gap. */
  readonly gapMs: number;
  readonly done: number;
  readonly failed: number;
  readonly other: number;
}

export interface Groups {
  readonly groups: Group[];
  /** How many groups there are, of which `groups` may be a part. */
  readonly total: Count;
  /** Whether these are all groups, with all their waiting tasks. */
  readonly complete: boolean;
  /** In the order by name: what `after` has to be for the next groups. Null at the end, and in the other order. */
  readonly next: string | null;
  /** In how many of the newest rows finished tasks were counted, and whether these are all rows of the table. */
  readonly newest: number;
  readonly newestComplete: boolean;
}

export interface GroupRequest {
  readonly limit: number;
  /** Whether to include groups without running and waiting tasks. */
  readonly ended: boolean;
  /** By default, those with the most running tasks come first, then those with the most due ones. */
  readonly order?: "busiest" | "name" | undefined;
  /** In the order by name, only groups after this one. */
  readonly after?: string | undefined;
  /** A part of the name, regardless of case. */
  readonly text?: string | undefined;
}

/** In a large table, finished tasks are counted in at most this many of the newest rows. */
const maxNewest = 5_000;
const maxGroups = 10_000;
/** If many tasks are due, so many rows of each group are read to find those with the most. */
const firstLook = 20;
/** And so many of all groups that are returned together. */
const maxCountedTogether = 500_000;

type Told = Omit<Group, "running">;

/** A group as its rows say. `named`: whether the group itself is paused. */
type Row = Omit<Told, "waiting" | "due"> & { due: number; later: number; named: boolean };

/**
 * The cost does not depend on the table's size. The numbers of due tasks are exact up to `maxCounted` in each group, and
 * those of waiting tasks if the table has at most as many planned ones.
 */
export async function readGroups(client: Client, table: TaskTable, request: GroupRequest): Promise<Groups> {
  const { qualified, pauses } = table;
  const gap = millisecondsSql("t.gap");
  const isWhole = await isCountable(client, table);
  const found = await queryOne<{ groups: Row[]; ready: number; later: number; newest: number }>(
    client,
    `WITH ready AS MATERIALIZED (
       SELECT t."group"::text AS "group", t.plan::timestamptz AS plan, ${gap} AS gap FROM ${qualified} AS t
       WHERE ${isDueSql} ORDER BY ${dueOrderSql} LIMIT ${maxCounted + 1}
     ), later AS MATERIALIZED (
       SELECT t."group"::text AS "group", t.plan::timestamptz AS plan, ${gap} AS gap FROM ${qualified} AS t
       WHERE ${isPlannedSql} ORDER BY t.plan LIMIT ${maxCounted + 1}
     ), newest AS MATERIALIZED (
       SELECT n."group", count(*) AS rows, count(*) FILTER (WHERE n.state = 'DONE') AS done,
         count(*) FILTER (WHERE n.state = 'FAIL') AS failed, count(*) FILTER (WHERE n.state IN ('GONE', 'STOP')) AS other
       FROM (
         SELECT t."group"::text AS "group", t.state::text AS state FROM ${qualified} AS t
         ${isWhole ? "" : `ORDER BY t.id DESC LIMIT ${maxNewest}`}
       ) AS n GROUP BY n."group"
     ), counted AS (
       SELECT w."group", count(*) FILTER (WHERE w.plan <= clock_timestamp()) AS due,
         count(*) FILTER (WHERE w.plan > clock_timestamp()) AS later, min(w.plan) AS oldest, max(w.gap) AS gap,
         sum(w.done) AS done, sum(w.failed) AS failed, sum(w.other) AS other
       FROM (
         SELECT "group", plan, 0 AS done, 0 AS failed, 0 AS other, gap FROM ready
         UNION ALL SELECT "group", plan, 0, 0, 0, gap FROM later
         UNION ALL SELECT "group", NULL, 0, 0, 0, 0 FROM ${pauses} WHERE "group" IS NOT NULL
         UNION ALL SELECT "group", NULL, done, failed, other, 0 FROM newest
       ) AS w GROUP BY w."group"
     )
     SELECT (SELECT count(*) FROM ready)::float8 AS ready, (SELECT count(*) FROM later)::float8 AS later,
       coalesce((SELECT sum(rows) FROM newest), 0)::float8 AS newest,
       coalesce((SELECT jsonb_agg(to_jsonb(g)) FROM (
         SELECT coalesce(c."group", '') AS "group", c.due::float8 AS due, c.later::float8 AS later, ${isoTimeSql("c.oldest")} AS oldest,
           CASE WHEN c.oldest <= clock_timestamp() AND isfinite(c.oldest) THEN ${millisecondsSql("clock_timestamp() - c.oldest")} END AS "oldestDueMs",
           EXISTS (SELECT FROM ${pauses} AS p WHERE p."group" IS NULL OR p."group" = c."group") AS paused,
           EXISTS (SELECT FROM ${pauses} AS p WHERE p."group" = c."group") AS named, coalesce(c.gap, 0)::float8 AS "gapMs",
           c.done::float8 AS done, c.failed::float8 AS failed, c.other::float8 AS other
         FROM counted AS c
       ) AS g), '[]') AS groups`,
  );
  const { ready, later, newest } = found;
  const areAllPlanned = later <= maxCounted;
  const heads = ready <= maxCounted ? null : await readHeads(client, table);
  const running = await withRunning(client, table, withHeads(found.groups, heads ?? []));
  const { listed, page, next } = choose(running, request);
  const due = await countDue(
    client,
    table,
    page.map(({ row }) => row),
    heads,
  );
  const groups = page.map((each) => toGroup(each, due.get(each.row.group), areAllPlanned));
  const areAllFound = areAllPlanned && (heads?.length ?? 0) < maxGroups;
  return {
    groups,
    total: areAllFound ? exactly(listed) : atLeast(listed),
    complete: areAllFound && page.length === listed && groups.every(({ waiting }) => waiting.exact),
    next,
    newest,
    newestComplete: isWhole || newest < maxNewest,
  };
}

function withHeads(groups: readonly Row[], heads: readonly Head[]): Row[] {
  const rows = new Map(groups.map((row) => [row.group, row]));
  for (const { group, due, oldest, oldestDueMs, paused, named } of heads) {
    const known = rows.get(group) ?? emptyRow(group);
    const isOlder = known.oldest === null || (oldestDueMs ?? Infinity) > (known.oldestDueMs ?? -1);
    const first = isOlder ? { oldest, oldestDueMs } : {};
    rows.set(group, { ...known, paused, named, ...first, due: Math.max(known.due, due) });
  }
  return [...rows.values()];
}

/** @returns how many groups there are with the text, and those that are wanted */
function choose(running: readonly Running[], { text, order, after, ended, limit }: GroupRequest) {
  const listed = running
    .filter((each) => ended || each.row.named || each.running + each.row.due + each.row.later > 0)
    .filter(({ row }) => text === undefined || row.group.toLowerCase().includes(text.toLowerCase()))
    .toSorted(order === "name" ? byName : byWork);
  const rest = after === undefined ? listed : listed.filter(({ row }) => row.group > after);
  const page = rest.slice(0, limit);
  const next = order === "name" && page.length < rest.length ? (page.at(-1)?.row.group ?? null) : null;
  return { listed: listed.length, page, next };
}

/** @param counted the due tasks, if not all of them were read at first */
function toGroup({ row, running }: Running, counted: Count | undefined, areAllPlanned: boolean): Group {
  const { later, named: _named, ...told } = row;
  const due = counted ?? exactly(row.due);
  return { ...told, running, due, waiting: sumOf(due, areAllPlanned ? exactly(later) : atLeast(later)) };
}

/** A group of which tasks are due, with one hash for each `remote`. */
type Head = Pick<Row, "group" | "due" | "oldest" | "oldestDueMs" | "paused" | "named"> & {
  readonly hashes: readonly number[];
};

/** Of each group with due tasks, the first tasks. Two groups can have the same hash: only one of them is found. */
async function readHeads(client: Client, table: TaskTable): Promise<Head[]> {
  const { qualified, pauses } = table;
  const { rows } = await client.query<Head>(
    `WITH ${groupHeads(table, { columns: 'd.hash, d."group"', after: "-2147483649" })},
     heads AS MATERIALIZED (SELECT hash, "group"::text AS "group" FROM head LIMIT ${maxGroups})
     SELECT g.*, ${isoTimeSql("g.first")} AS oldest,
       CASE WHEN isfinite(g.first) THEN ${millisecondsSql("clock_timestamp() - g.first")} END AS "oldestDueMs",
       EXISTS (SELECT FROM ${pauses} AS p WHERE p."group" IS NULL OR p."group" = g."group") AS paused,
       EXISTS (SELECT FROM ${pauses} AS p WHERE p."group" = g."group") AS named
     FROM (
       SELECT h."group", array_agg(h.hash) AS hashes, sum(n.due)::float8 AS due, min(n.first) AS first
       FROM heads AS h CROSS JOIN LATERAL (SELECT count(*) AS due, min(d.plan) AS first FROM (
         SELECT t.plan::timestamptz AS plan FROM ${qualified} AS t
         WHERE ${isDueSql} AND t.hash = ANY (ARRAY[h.hash]) ORDER BY ${dueOrderSql} LIMIT ${firstLook}
       ) AS d) AS n GROUP BY 1
     ) AS g`,
  );
  return rows;
}

/** Counts the due tasks of groups whose tasks were not all read. */
async function countDue(
  client: Client,
  { qualified }: TaskTable,
  groups: readonly Pick<Row, "group">[],
  heads: readonly Head[] | null,
): Promise<ReadonlyMap<string, Count>> {
  const wanted = new Set(groups.map(({ group }) => group));
  const counted = (heads ?? []).filter(({ group }) => wanted.has(group));
  if (counted.length === 0) return new Map();
  const most = Math.min(maxCounted, Math.ceil(maxCountedTogether / counted.length));
  const pairs = counted.flatMap(({ group, hashes }) => hashes.map((hash) => ({ group, hash })));
  const { rows } = await client.query<{ group: string; due: number; isCut: boolean }>(
    `SELECT a."group", sum(n.due)::float8 AS due, bool_or(n.scanned > ${most}) AS "isCut"
     FROM unnest($1::int[], $2::text[]) AS a(hash, "group"), LATERAL (
       SELECT count(*) AS scanned, count(*) FILTER (WHERE d."group" = a."group") AS due FROM (
         SELECT t."group"::text AS "group" FROM ${qualified} AS t
         WHERE ${isDueSql} AND t.hash = ANY (ARRAY[a.hash]) ORDER BY ${dueOrderSql} LIMIT ${most + 1}
       ) AS d
     ) AS n GROUP BY a."group"`,
    [pairs.map(({ hash }) => hash), pairs.map(({ group }) => group)],
  );
  return new Map(rows.map(({ group, due, isCut }) => [group, isCut ? atLeast(due - 1) : exactly(due)]));
}

interface Running {
  readonly row: Row;
  readonly running: number;
}

/** The numbers come from the application names of the sessions. */
async function withRunning(client: Client, table: TaskTable, rows: readonly Row[]): Promise<Running[]> {
  const unmatched = new Map((await readSessions(client, table)).groups);
  const names =
    unmatched.size === 0
      ? []
      : await groupsAsShown(
          client,
          table,
          rows.map(({ group }) => group),
        );
  const known = rows.map((row, index) => {
    const name = names[index] ?? "";
    const running = unmatched.get(name) ?? 0;
    unmatched.delete(name);
    return { row, running };
  });
  // The remaining groups have only running tasks, or none of their rows was read.
  return [...known, ...[...unmatched].map(([group, running]) => ({ row: emptyRow(group), running }))];
}

const emptyRow = (group: string): Row => ({
  group,
  due: 0,
  later: 0,
  oldest: null,
  oldestDueMs: null,
  paused: false,
  named: false,
  gapMs: 0,
  done: 0,
  failed: 0,
  other: 0,
});

const compareNames = (one: string, other: string): number => (one < other ? -1 : one > other ? 1 : 0);

const byName = ({ row: one }: Running, { row: other }: Running): number => compareNames(one.group, other.group);

const byWork = (one: Running, other: Running): number =>
  other.running - one.running ||
  other.row.due - one.row.due ||
  other.row.later - one.row.later ||
  other.row.failed - one.row.failed ||
  other.row.done - one.row.done ||
  byName(one, other);
