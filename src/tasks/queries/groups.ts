import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { dueOrder, isDue, isLater } from "../queue.js";
import { readPages } from "./rowCounts.js";
import { readSessions, shownGroups } from "./executorSessions.js";
import { isoTime, milliseconds } from "../time.js";

/** A group of which something runs, waits or ended of late, or that is paused. */
export interface Group {
  readonly group: string;
  /** Sessions that run a task of it. */
  readonly running: number;
  /** In PLAN. */
  readonly waiting: number;
  /** Those whose plan has come. */
  readonly due: number;
  /** Earliest plan of a task in PLAN that was looked at; for how long that has been, in ms, where it has come. */
  readonly oldest: string | null;
  readonly oldestDueMs: number | null;
  /** Itself, or the whole table. */
  readonly paused: boolean;
  /** Of the newest rows, those that ended. */
  readonly done: number;
  readonly failed: number;
  /** GONE and STOP. */
  readonly other: number;
}

export interface Groups {
  /** Those with most to do first. */
  readonly groups: Group[];
  /**
   * Whether all that waits was looked at; else `waiting` and `due` are estimates, and a group in which
   * little waits may be missing.
   */
  readonly complete: boolean;
  /** How many of the newest rows were looked at for what ended, and whether those are all. */
  readonly newest: number;
  readonly newestComplete: boolean;
}

/** How much of what waits is looked at. */
export interface GroupsEffort {
  /** Rows of each of the queue's indexes, in their order. */
  readonly rows: number;
  /** Where more waits, pages of the table, taken at random: their rows stand for all. */
  readonly pages: number;
  /** There, due rows of each group that is told: one with fewer is counted. */
  readonly each: number;
}

/** For an answer that is asked for again and again, and for one that somebody waits for. */
export const briefly: GroupsEffort = { rows: 5_000, pages: 2_500, each: 150 };
export const thoroughly: GroupsEffort = { rows: 20_000, pages: 10_000, each: 1_000 };

/** The newest rows that are looked at. */
const mostNewest = 5_000;
/** Groups that are matched with sessions. */
const mostGroups = 1_000;

type Counted = Omit<Group, "running">;

/** `named`: it is paused itself. */
type Row = Counted & { readonly named: boolean };

/** `hashes`: those of its rows in a sample, one for each remote; null where there is none. */
type Found = Row & { readonly hashes: readonly number[] | null };

/**
 * Costs the same in a table of any size.
 *
 * @param request.ended whether to tell also of groups in which nothing runs or waits
 */
export async function readGroups(
  client: Client,
  table: TaskTable,
  {
    limit,
    ended,
    effort,
  }: { readonly limit: number; readonly ended: boolean; readonly effort: GroupsEffort },
): Promise<Groups> {
  const { qualified, pauses } = table;
  const percent = Math.min(100, (100 * effort.pages) / Math.max(1, await readPages(client, table)));
  const { rows } = await client.query<{
    groups: Found[];
    ready: number;
    later: number;
    newest: number;
  }>(
    `WITH ready AS MATERIALIZED (
       SELECT t."group"::text AS "group", t.plan::timestamptz AS plan FROM ${qualified} AS t
       WHERE ${isDue} ORDER BY ${dueOrder} LIMIT ${effort.rows}
     ), later AS MATERIALIZED (
       SELECT t."group"::text AS "group", t.plan::timestamptz AS plan FROM ${qualified} AS t
       WHERE ${isLater} ORDER BY t.plan LIMIT ${effort.rows}
     ), seen AS MATERIALIZED (
       SELECT (SELECT count(*) FROM ready)::float8 AS ready, (SELECT count(*) FROM later)::float8 AS later
     ), sampled AS MATERIALIZED (
       SELECT t."group"::text AS "group", round(count(*) * (100 / $1::float8)) AS waiting,
         round(count(*) FILTER (WHERE t.plan::timestamptz <= clock_timestamp()) * (100 / $1::float8)) AS due,
         min(t.plan::timestamptz) AS oldest, array_agg(DISTINCT t.hash) AS hashes
       FROM ${qualified} AS t TABLESAMPLE SYSTEM ($1::float8)
       WHERE t.ready IS NOT NULL AND (SELECT ready >= ${effort.rows} OR later >= ${effort.rows} FROM seen)
       GROUP BY 1
     ), newest AS MATERIALIZED (
       SELECT t."group"::text AS "group", t.state::text AS state FROM ${qualified} AS t ORDER BY t.id DESC LIMIT ${mostNewest}
     ), counted AS (
       SELECT w."group", greatest(count(w.plan), max(w.waiting)) AS waiting,
         greatest(count(*) FILTER (WHERE w.plan <= clock_timestamp()), max(w.due)) AS due,
         least(min(w.plan), min(w.oldest)) AS oldest, sum(w.done) AS done, sum(w.failed) AS failed, sum(w.other) AS other
       FROM (
         SELECT "group", plan, 0 AS waiting, 0 AS due, NULL::timestamptz AS oldest, 0 AS done, 0 AS failed, 0 AS other FROM ready
         UNION ALL SELECT "group", plan, 0, 0, NULL, 0, 0, 0 FROM later
         UNION ALL SELECT "group", NULL, waiting, due, oldest, 0, 0, 0 FROM sampled
         UNION ALL SELECT "group", NULL, 0, 0, NULL, 0, 0, 0 FROM ${pauses} WHERE "group" IS NOT NULL
         UNION ALL SELECT "group", NULL, 0, 0, NULL, count(*) FILTER (WHERE state = 'DONE'), count(*) FILTER (WHERE state = 'FAIL'),
           count(*) FILTER (WHERE state IN ('GONE', 'STOP')) FROM newest GROUP BY "group"
       ) AS w GROUP BY w."group"
     )
     SELECT (SELECT ready FROM seen) AS ready, (SELECT later FROM seen) AS later, (SELECT count(*) FROM newest)::float8 AS newest,
       coalesce((SELECT jsonb_agg(to_jsonb(g)) FROM (
         SELECT coalesce(c."group", '') AS "group", c.waiting::float8 AS waiting, c.due::float8 AS due, ${isoTime("c.oldest")} AS oldest,
           CASE WHEN c.oldest <= clock_timestamp() AND isfinite(c.oldest) THEN ${milliseconds("clock_timestamp() - c.oldest")} END AS "oldestDueMs",
           EXISTS (SELECT FROM ${pauses} AS p WHERE p."group" IS NULL OR p."group" = c."group") AS paused,
           EXISTS (SELECT FROM ${pauses} AS p WHERE p."group" = c."group") AS named,
           (SELECT s.hashes FROM sampled AS s WHERE s."group" = c."group") AS hashes,
           c.done::float8 AS done, c.failed::float8 AS failed, c.other::float8 AS other
         FROM counted AS c ORDER BY c.due DESC, c.waiting DESC, c.failed DESC, c.done DESC, c."group" LIMIT ${mostGroups}
       ) AS g), '[]') AS groups`,
    [percent],
  );
  const { groups, ready, later, newest } = rows[0] ?? { groups: [], ready: 0, later: 0, newest: 0 };
  const sure = await countSmall(client, table, groups, { groups: limit, rows: effort.each });
  const all = await withRunning(client, table, sure);
  return {
    groups: all
      .filter(({ group, named }) => ended || named || group.running + group.waiting > 0)
      .toSorted((a, b) => b.group.running - a.group.running)
      .slice(0, limit)
      .map(({ group }) => group),
    complete: percent === 100 || (ready < effort.rows && later < effort.rows),
    newest,
    newestComplete: newest < mostNewest,
  };
}

/**
 * Counts what is due of the first groups where a sample told it, each as far as `most.rows`: what few rows
 * of a sample say is rough, and those of which it had too many by chance stand first.
 */
async function countSmall(
  client: Client,
  { qualified }: TaskTable,
  found: readonly Found[],
  most: { readonly groups: number; readonly rows: number },
): Promise<Row[]> {
  const asked = found
    .slice(0, most.groups)
    .flatMap(({ hashes, group }) => (hashes ?? []).map((hash) => ({ hash, group })));
  // Two names may have the same hash.
  const { rows } = await client.query<{ group: string; due: number; looked: number }>(
    `SELECT a."group", sum(n.due)::float8 AS due, sum(n.looked)::float8 AS looked
     FROM unnest($1::int[], $2::text[]) AS a(hash, "group"), LATERAL (
       SELECT count(*) AS looked, count(*) FILTER (WHERE d."group" = a."group") AS due FROM (
         SELECT t."group"::text AS "group" FROM ${qualified} AS t WHERE ${isDue} AND t.hash = ANY (ARRAY[a.hash]) ORDER BY ${dueOrder} LIMIT ${most.rows}
       ) AS d
     ) AS n GROUP BY a."group"`,
    [asked.map(({ hash }) => hash), asked.map(({ group }) => group)],
  );
  const counted = new Map(
    rows.flatMap(({ group, due, looked }) => (looked < most.rows ? [[group, due]] : [])),
  );
  const sure = found.map(({ hashes, ...row }): Row => {
    const due = hashes === null ? undefined : counted.get(row.group);
    if (due === undefined) return row;
    return { ...row, due, waiting: Math.max(due, row.waiting - row.due + due) };
  });
  const byDue = sure
    .slice(0, most.groups)
    .toSorted((a, b) => b.due - a.due || b.waiting - a.waiting);
  // The others have only not been found to have less than the sample says.
  return [...byDue, ...sure.slice(most.groups)];
}

/** Sessions tell the name of the group that they run a task of. */
async function withRunning(
  client: Client,
  table: TaskTable,
  found: readonly Row[],
): Promise<{ readonly group: Group; readonly named: boolean }[]> {
  const left = new Map((await readSessions(client, table)).groups);
  const names =
    left.size === 0
      ? []
      : await shownGroups(
          client,
          table,
          found.map(({ group }) => group),
        );
  const known = found.map(({ named, ...counted }, place) => {
    const name = names[place] ?? "";
    const running = left.get(name) ?? 0;
    left.delete(name);
    return { group: { ...counted, running }, named };
  });
  // All of its tasks run, or none of them is among those that were looked at.
  const others = [...left].map(([group, running]) => ({
    group: { ...nothing, group, running },
    named: false,
  }));
  return [...known, ...others];
}

const nothing: Omit<Counted, "group"> = {
  waiting: 0,
  due: 0,
  oldest: null,
  oldestDueMs: null,
  paused: false,
  done: 0,
  failed: 0,
  other: 0,
};
