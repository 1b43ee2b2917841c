import { queryOne } from "../queryOne.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { dueOrderSql, isDueSql, isPlannedSql, isoTimeSql, millisecondsSql } from "../sqlFragments.js";
import { readPages } from "./counts.js";
import { readSessions, groupsAsShown } from "./executorSessions.js";

/** A group that has running, waiting or recently ended tasks, or that is paused. */
export interface Group {
  readonly group: string;
  /** Number of sessions that run tasks of the group. */
  readonly running: number;
  readonly waiting: number;
  readonly due: number;
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
  /** The groups in descending order of running tasks, then of due tasks. */
  readonly groups: Group[];
  /** If not, `waiting` and `due` are estimates, and a group with few waiting tasks may be missing. */
  readonly complete: boolean;
  /** How many of the newest rows were read to count finished tasks, and whether these are all rows of the table. */
  readonly newest: number;
  readonly newestComplete: boolean;
}

/**
 * For a request that is repeated regularly. `rows`: from each of the two indexes of waiting tasks. `pages`: size of the
 * random sample that is read if one of them has more. `rowsPerGroup`: if the table is sampled and a group has fewer due
 * tasks than this, they are counted exactly.
 */
export const pollLimits = { rows: 5_000, pages: 2_500, rowsPerGroup: 150 };
/** For a single request. */
export const thoroughLimits: typeof pollLimits = { rows: 20_000, pages: 10_000, rowsPerGroup: 1_000 };

/** Finished tasks are counted in at most this many of the newest rows. */
const maxNewest = 5_000;
const maxGroups = 1_000;

type GroupCounts = Omit<Group, "running">;

/** `named` tells whether the group itself is paused, regardless of a pause of the whole table. */
type GroupRow = GroupCounts & { readonly named: boolean };

/** `hashes` are the values of `hash` in the group's sampled rows, one for each `remote`. Null if there are none. */
type SampledRow = GroupRow & { readonly hashes: readonly number[] | null };

/**
 * The cost does not depend on the table's size.
 *
 * @param request.ended whether to include groups without running and waiting tasks
 */
export async function readGroups(
  client: Client,
  table: TaskTable,
  {
    limit,
    ended,
    limits: effort,
  }: { readonly limit: number; readonly ended: boolean; readonly limits: typeof pollLimits },
): Promise<Groups> {
  const { qualified, pauses } = table;
  const gap = millisecondsSql("t.gap");
  const percent = Math.min(100, (100 * effort.pages) / Math.max(1, await readPages(client, table)));
  const { groups, ready, later, newest } = await queryOne<{
    groups: SampledRow[];
    ready: number;
    later: number;
    newest: number;
  }>(
    client,
    `WITH ready AS MATERIALIZED (
       SELECT t."group"::text AS "group", t.plan::timestamptz AS plan, ${gap} AS gap FROM ${qualified} AS t
       WHERE ${isDueSql} ORDER BY ${dueOrderSql} LIMIT ${effort.rows}
     ), later AS MATERIALIZED (
       SELECT t."group"::text AS "group", t.plan::timestamptz AS plan, ${gap} AS gap FROM ${qualified} AS t
       WHERE ${isPlannedSql} ORDER BY t.plan LIMIT ${effort.rows}
     ), seen AS MATERIALIZED (
       SELECT (SELECT count(*) FROM ready)::float8 AS ready, (SELECT count(*) FROM later)::float8 AS later
     ), sampled AS MATERIALIZED (
       SELECT t."group"::text AS "group", round(count(*) * (100 / $1::float8)) AS waiting,
         round(count(*) FILTER (WHERE t.plan::timestamptz <= clock_timestamp()) * (100 / $1::float8)) AS due,
         min(t.plan::timestamptz) AS oldest, array_agg(DISTINCT t.hash) AS hashes, max(${gap}) AS gap
       FROM ${qualified} AS t TABLESAMPLE SYSTEM ($1::float8)
       WHERE t.ready IS NOT NULL AND (SELECT ready >= ${effort.rows} OR later >= ${effort.rows} FROM seen)
       GROUP BY 1
     ), newest AS MATERIALIZED (
       SELECT t."group"::text AS "group", t.state::text AS state FROM ${qualified} AS t ORDER BY t.id DESC LIMIT ${maxNewest}
     ), counted AS (
       SELECT w."group", greatest(count(w.plan), max(w.waiting)) AS waiting,
         greatest(count(*) FILTER (WHERE w.plan <= clock_timestamp()), max(w.due)) AS due,
         least(min(w.plan), min(w.oldest)) AS oldest, sum(w.done) AS done, sum(w.failed) AS failed, sum(w.other) AS other,
         max(w.gap) AS gap
       FROM (
         SELECT "group", plan, 0 AS waiting, 0 AS due, NULL::timestamptz AS oldest, 0 AS done, 0 AS failed, 0 AS other, gap FROM ready
         UNION ALL SELECT "group", plan, 0, 0, NULL, 0, 0, 0, gap FROM later
         UNION ALL SELECT "group", NULL, waiting, due, oldest, 0, 0, 0, gap FROM sampled
         UNION ALL SELECT "group", NULL, 0, 0, NULL, 0, 0, 0, 0 FROM ${pauses} WHERE "group" IS NOT NULL
         UNION ALL SELECT "group", NULL, 0, 0, NULL, count(*) FILTER (WHERE state = 'DONE'), count(*) FILTER (WHERE state = 'FAIL'),
           count(*) FILTER (WHERE state IN ('GONE', 'STOP')), 0 FROM newest GROUP BY "group"
       ) AS w GROUP BY w."group"
     )
     SELECT (SELECT ready FROM seen) AS ready, (SELECT later FROM seen) AS later, (SELECT count(*) FROM newest)::float8 AS newest,
       coalesce((SELECT jsonb_agg(to_jsonb(g)) FROM (
         SELECT coalesce(c."group", '') AS "group", c.waiting::float8 AS waiting, c.due::float8 AS due, ${isoTimeSql("c.oldest")} AS oldest,
           CASE WHEN c.oldest <= clock_timestamp() AND isfinite(c.oldest) THEN ${millisecondsSql("clock_timestamp() - c.oldest")} END AS "oldestDueMs",
           EXISTS (SELECT FROM ${pauses} AS p WHERE p."group" IS NULL OR p."group" = c."group") AS paused,
           EXISTS (SELECT FROM ${pauses} AS p WHERE p."group" = c."group") AS named, coalesce(c.gap, 0)::float8 AS "gapMs",
           (SELECT s.hashes FROM sampled AS s WHERE s."group" = c."group") AS hashes,
           c.done::float8 AS done, c.failed::float8 AS failed, c.other::float8 AS other
         FROM counted AS c ORDER BY c.due DESC, c.waiting DESC, c.failed DESC, c.done DESC, c."group" LIMIT ${maxGroups}
       ) AS g), '[]') AS groups`,
    [percent],
  );
  const counted = await countSampled(client, table, groups, {
    groups: limit,
    rows: effort.rowsPerGroup,
  });
  const all = await withRunning(client, table, counted);
  return {
    groups: all
      .filter(({ group, named }) => ended || named || group.running + group.waiting > 0)
      .toSorted((a, b) => b.group.running - a.group.running)
      .slice(0, limit)
      .map(({ group }) => group),
    complete: percent === 100 || (ready < effort.rows && later < effort.rows),
    newest,
    newestComplete: newest < maxNewest,
  };
}

/** Estimates from few rows are rough, and in the order of the estimates, those that are too high come first. */
async function countSampled(
  client: Client,
  { qualified }: TaskTable,
  found: readonly SampledRow[],
  max: { readonly groups: number; readonly rows: number },
): Promise<GroupRow[]> {
  const sampled = found
    .slice(0, max.groups)
    .flatMap(({ hashes, group }) => (hashes ?? []).map((hash) => ({ hash, group })));
  // Two groups may have the same hash, so the group's name is compared as well.
  const { rows } = await client.query<{ group: string; due: number; scanned: number }>(
    `SELECT a."group", sum(n.due)::float8 AS due, sum(n.scanned)::float8 AS scanned
     FROM unnest($1::int[], $2::text[]) AS a(hash, "group"), LATERAL (
       SELECT count(*) AS scanned, count(*) FILTER (WHERE d."group" = a."group") AS due FROM (
         SELECT t."group"::text AS "group" FROM ${qualified} AS t WHERE ${isDueSql} AND t.hash = ANY (ARRAY[a.hash]) ORDER BY ${dueOrderSql} LIMIT ${max.rows}
       ) AS d
     ) AS n GROUP BY a."group"`,
    [sampled.map(({ hash }) => hash), sampled.map(({ group }) => group)],
  );
  const counted = new Map(rows.flatMap(({ group, due, scanned }) => (scanned < max.rows ? [[group, due]] : [])));
  const corrected = found.map(({ hashes, ...row }): GroupRow => {
    const due = hashes === null ? undefined : counted.get(row.group);
    if (due === undefined) return row;
    return { ...row, due, waiting: Math.max(due, row.waiting - row.due + due) };
  });
  const byDue = corrected.slice(0, max.groups).toSorted((a, b) => b.due - a.due || b.waiting - a.waiting);
  // The other groups keep the order of their estimates.
  return [...byDue, ...corrected.slice(max.groups)];
}

/** The numbers come from the application names of the sessions. */
async function withRunning(
  client: Client,
  table: TaskTable,
  found: readonly GroupRow[],
): Promise<{ readonly group: Group; readonly named: boolean }[]> {
  const unmatched = new Map((await readSessions(client, table)).groups);
  const names =
    unmatched.size === 0
      ? []
      : await groupsAsShown(
          client,
          table,
          found.map(({ group }) => group),
        );
  const known = found.map(({ named, ...counted }, index) => {
    const name = names[index] ?? "";
    const running = unmatched.get(name) ?? 0;
    unmatched.delete(name);
    return { group: { ...counted, running }, named };
  });
  // The remaining groups have only running tasks, or none of their rows was read.
  const others = [...unmatched].map(([group, running]) => ({
    group: { ...emptyCounts, group, running },
    named: false,
  }));
  return [...known, ...others];
}

const emptyCounts: Omit<GroupCounts, "group"> = {
  waiting: 0,
  due: 0,
  oldest: null,
  oldestDueMs: null,
  paused: false,
  gapMs: 0,
  done: 0,
  failed: 0,
  other: 0,
};
