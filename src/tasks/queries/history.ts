import { queryValue } from "../queryOne.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { isoTimeSql } from "../sqlFragments.js";
import { extentColumns, scanNewest, type ScanExtent, type WindowRow } from "./scan.js";
import type { TaskState } from "../../shared/taskState.js";
import { durationBounds, quantile } from "../../shared/statistics.js";

/** Tasks of one state, and in a table with users of one role, whose errors have the same first line. */
export interface ErrorGroup {
  /** The first line, up to 1,000 characters. */
  readonly error: string;
  readonly state: TaskState;
  readonly role: string | null;
  readonly count: number;
  readonly firstSeen: string | null;
  /** `stop` of the task that ended last, or null if none has one. */
  readonly lastSeen: string | null;
  /** Its id, or the largest one if none has a `stop`. */
  readonly lastId: string;
}

export interface ErrorGroups extends ScanExtent {
  readonly errors: readonly ErrorGroup[];
  readonly more: boolean;
}

/** How many groups of one window are counted, so that errors that are all different do not fill the memory. */
const maxPerWindow = 1_000;
const maxKept = 10_000;

/** As the view `task_errors`, but of the newest rows: the scan ends as soon as `enough` returns true. */
export async function readErrorGroups(
  client: Queryable,
  table: TaskTable,
  limit: number,
  enough: () => boolean,
): Promise<ErrorGroups> {
  const groups = new Map<string, ErrorGroup>();
  const extent = await scanNewest<(WindowRow & { error: null }) | (WindowRow & ErrorGroup)>(
    client,
    table,
    {
      columns: `"left"(split_part(t.error::text, E'\\n', 1), 1000) AS error, t.state::text AS state, t.role::text AS role, t.stop::timestamptz AS stop`,
      select: `SELECT ${extentColumns}, e.* FROM extent LEFT JOIN (
          SELECT error, state, role, count(*)::float8 AS count, ${isoTimeSql("min(stop)")} AS "firstSeen",
            ${isoTimeSql("max(stop)")} AS "lastSeen", (array_agg(id ORDER BY stop DESC NULLS LAST, id DESC))[1]::text AS "lastId"
          FROM seen WHERE error IS NOT NULL GROUP BY error, state, role ORDER BY 4 DESC LIMIT ${maxPerWindow}
        ) AS e ON true`,
      add: (rows) => {
        for (const row of rows) if (row.error !== null) addGroup(groups, row);
      },
    },
    enough,
  );
  const sorted = [...groups.values()].toSorted(
    (a, b) => b.count - a.count || Number(BigInt(b.lastId) - BigInt(a.lastId)),
  );
  return { errors: sorted.slice(0, limit), more: sorted.length > limit, ...extent };
}

function addGroup(
  groups: Map<string, ErrorGroup>,
  { error, state, role, count, firstSeen, lastSeen, lastId }: ErrorGroup,
): void {
  const key = JSON.stringify([state, role, error]);
  const known = groups.get(key);
  if (known === undefined) {
    if (groups.size < maxKept) groups.set(key, { error, state, role, count, firstSeen, lastSeen, lastId });
    return;
  }
  const isLast = isLater(lastSeen, known.lastSeen);
  const isFirst = firstSeen !== null && (known.firstSeen === null || isLater(known.firstSeen, firstSeen));
  groups.set(key, {
    ...known,
    count: known.count + count,
    ...(isFirst ? { firstSeen } : {}),
    ...(isLast ? { lastSeen, lastId } : {}),
  });
}

/** The two times are of the same server and session. */
function isLater(one: string | null, other: string | null): boolean {
  if (one === null || other === null) return one !== null;
  const difference = Date.parse(one) - Date.parse(other);
  return difference === 0 ? one > other : difference > 0;
}

interface Bucket {
  readonly hour: number;
  readonly kind: "run" | "wait";
  /** Null for runs whose duration is unknown, because a time is missing or infinite. */
  readonly bucket: number | null;
  readonly count: number;
  readonly failed: number;
  readonly longest: number | null;
}

interface Hour {
  count: number;
  failed: number;
  runMax: number | null;
  readonly run: Record<number, number>;
  readonly wait: Record<number, number>;
}

const emptyHour = (): Hour => ({
  count: 0,
  failed: 0,
  runMax: null,
  run: {},
  wait: {},
});

const hourSeconds = 3_600;

/** `hours` has one element for each hour, oldest first, including the hours without runs. */
export type RunHistory = Awaited<ReturnType<typeof readHourlyRuns>>;

/**
 * As the view `task_stats`, but of the newest rows. If these are not all, the hours before the first one in which one of
 * them ended are unknown, and that one has perhaps only a part of its runs. The last hour is not over.
 */
export async function readHourlyRuns(client: Queryable, table: TaskTable, hours: number, enough: () => boolean) {
  const last = await queryValue<number>(
    client,
    "SELECT floor(date_part('epoch', clock_timestamp()) / 3600) * 3600 AS now",
  );
  const first = last - (hours - 1) * hourSeconds;
  const found = new Map<number, Hour>();
  const extent = await scanNewest<WindowRow & (Bucket | { kind: null })>(
    client,
    table,
    {
      columns: `CASE WHEN t.state::text IN ('DONE', 'FAIL') THEN t.stop::timestamptz END AS stop, t.state::text = 'FAIL' AS failed,
      t.start::timestamptz AS start, t.plan::timestamptz AS plan`,
      select: `SELECT ${extentColumns}, b.* FROM extent LEFT JOIN (
        SELECT floor(date_part('epoch', e.stop) / 3600) * 3600 AS hour, d.kind,
          width_bucket(d.seconds, $2::float8[]) AS bucket, count(*)::float8 AS count,
          (count(*) FILTER (WHERE e.failed))::float8 AS failed, max(d.seconds) AS longest
        FROM seen AS e, LATERAL (VALUES ('run', CASE WHEN isfinite(e.start) THEN date_part('epoch', e.stop - e.start) END),
          ('wait', CASE WHEN isfinite(e.plan) AND isfinite(e.start) THEN greatest(0, date_part('epoch', e.start - e.plan)) END)) AS d(kind, seconds)
        WHERE e.stop >= to_timestamp($1) AND isfinite(e.stop)
        GROUP BY 1, 2, 3
      ) AS b ON true`,
      values: [first, durationBounds],
      add: (rows) => {
        for (const row of rows) if (row.kind !== null) addBucket(found, row);
      },
    },
    enough,
  );
  const at = Array.from({ length: hours }, (_, index) => first + index * hourSeconds);
  const known = extent.complete ? -Infinity : Math.min(...found.keys(), last);
  const summary = (each: number) =>
    summaryOf(each, each < known ? null : (found.get(each) ?? emptyHour()), each > known && each < last);
  return { hours: at.map(summary), ...extent };
}

function addBucket(found: Map<number, Hour>, { hour: at, kind, bucket, count, failed, longest }: Bucket): void {
  const hour = found.get(at) ?? emptyHour();
  found.set(at, hour);
  if (bucket !== null) hour[kind][bucket] = (hour[kind][bucket] ?? 0) + count;
  if (kind === "wait") return;
  hour.count += count;
  hour.failed += failed;
  if (longest !== null) hour.runMax = Math.max(hour.runMax ?? longest, longest);
}

/**
 * The runs that ended in an hour as DONE or FAIL. `at` is its start, in seconds since 1970; durations are in seconds, and
 * waits are from the planned time to the start.
 *
 * @param found null if it is unknown
 * @param complete whether these are all its runs
 */
function summaryOf(at: number, found: Hour | null, complete: boolean) {
  const { count = null, failed = null, runMax = null, run = {}, wait = {} } = found ?? {};
  return {
    at,
    complete,
    count,
    failed,
    runP50: quantile(run, 0.5),
    runP95: quantile(run, 0.95),
    runMax,
    waitP50: quantile(wait, 0.5),
    waitP95: quantile(wait, 0.95),
  };
}
