import { comingTimes, isLastRun, isPausedSchedule, schedulesQuery } from "../../manager/schema/schedulesView.sql.js";
import { canReadOwed } from "../../manager/schema/owedTable.js";
import { queryValue } from "../queryOne.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { errorMessage } from "../../shared/errors.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import { isoTimeSql, millisecondsSql } from "../sqlFragments.js";
import { calendarText } from "../../manager/schema/calendar.js";

export interface ZonedTime {
  /** ISO 8601 with UTC offset. */
  readonly at: string;
  /** The clock's reading, such as `2027-03-28 03:00:00+02:00`. Null if there is no time zone. */
  readonly wall: string | null;
}

export interface PastRun {
  readonly id: string;
  readonly state: string;
  readonly start: string | null;
  readonly stop: string | null;
  readonly tookMs: number | null;
  readonly error: string | null;
}

/** A schedule: the row of a repeating task that waits or runs, or that has ended and owes its successor. */
export interface Schedule {
  readonly id: string;
  readonly group: string | null;
  readonly key: string | null;
  /** The role that it runs as, in a table with users. */
  readonly role: string | null;
  readonly rule: string | null;
  readonly zone: string | null;
  readonly repeat: string | null;
  /** Length of `repeat`, with months of 30 days. */
  readonly repeatMs: number | null;
  readonly drift: boolean;
  readonly catchup: boolean;
  readonly overlap: boolean;
  readonly state: string;
  readonly max: number;
  /** The planned time. Null if it is infinite or not yet known. */
  readonly plan: string | null;
  /** The coming times as far as they can be computed, at most three. */
  readonly next: readonly ZonedTime[];
  readonly paused: boolean;
  readonly pausedItself: boolean;
  /** How many runs in a row have failed, if it is paused because of that. */
  readonly suspendedAfter: number | null;
  /** How long ago the planned time of a waiting schedule came, in ms. Null if it has not come or the schedule runs. */
  readonly overdueMs: number | null;
  /** Why the next run could not be planned yet although the row has ended. Null if this is not so. */
  readonly owed: string | null;
  /** Why the rule gives no times, in the server's words. */
  readonly problem: string | null;
  readonly input: string;
  readonly failedTries: number;
  /** First line of the error of the last of these tries. Null if there was none. */
  readonly tryError: string | null;
  /** The last runs, newest first. Empty if there was none, or if their rows are gone. */
  readonly last: readonly PastRun[];
}

export type ScheduleName = Pick<Schedule, "id" | "key" | "role">;

/** Such as `nightly (schedule 5 of alice)`. */
export function nameSchedule({ id, key, role }: ScheduleName): string {
  const name = `schedule ${id}${role === null ? "" : ` of ${role}`}`;
  return key === null ? name : `${key} (${name})`;
}

interface ScheduleFilter {
  readonly group?: string;
  readonly key?: string;
  readonly role?: string;
  readonly text?: string;
  /** Only schedules with a planned time in this range. Times are in PostgreSQL's syntax. `until` is exclusive. */
  readonly since?: string;
  readonly until?: string;
}

interface SchedulesRequest {
  readonly filter: ScheduleFilter;
  readonly limit: number;
  readonly characters: number;
  readonly runs: number;
}

export interface Schedules {
  /** The schedules in the order of their planned times. Those without one come last. */
  readonly schedules: Schedule[];
  readonly more: boolean;
}

const shownTimes = 3;

const firstLineSql = (column: string): string => `left(split_part(${column}::text, E'\\n', 1), 1000)`;

function conditions({ group, key, role, text, since, until }: ScheduleFilter, values: unknown[]): string {
  const parameter = (value: unknown): string => `$${values.push(value)}`;
  const all = ["true"];
  if (group !== undefined) all.push(`s."group" = ${parameter(group)}::text`);
  if (key !== undefined) all.push(`s.key = ${parameter(key)}::text`);
  if (role !== undefined) all.push(`s.role = ${parameter(role)}::text`);
  if (text !== undefined) {
    const pattern = `lower(${parameter(text)}::text)`;
    all.push(`(strpos(lower(s.input), ${pattern}) > 0 OR strpos(lower(s.rule), ${pattern}) > 0)`);
  }
  if (since !== undefined) all.push(`s.plan >= ${parameter(since)}::timestamptz`);
  if (until !== undefined) all.push(`s.plan < ${parameter(until)}::timestamptz`);
  return all.join(" AND ");
}

/** The zone of schedule `s` must be valid. */
const wallSql = (time: string): string =>
  `to_char(${time} AT TIME ZONE s.zone, 'YYYY-MM-DD HH24:MI:SS') || ${offsetSql(`(${time} AT TIME ZONE s.zone) - (${time} AT TIME ZONE 'UTC')`)}`;

const offsetSql = (offset: string): string =>
  `CASE WHEN ${offset} < interval '0' THEN '-' ELSE '+' END || to_char(greatest(${offset}, -(${offset})), 'HH24:MI')`;

/** Reads rows through indexes, and computes the coming times only of the schedules that are listed. */
export async function readSchedules(
  client: Client,
  table: TaskTable,
  { filter, limit, characters, runs }: SchedulesRequest,
): Promise<Schedules> {
  const values: unknown[] = [limit + 1, characters];
  // The zone is valid if the server has computed times with it.
  const { rows } = await client.query<Omit<Schedule, "last" | "problem"> & { parent: string | null; broken: boolean }>(
    `WITH listed AS MATERIALIZED (
       SELECT s.* FROM (${schedulesQuery(table, await canReadOwed(client, table))}) AS s WHERE ${conditions(filter, values)}
       ORDER BY CASE WHEN s.computes OR NOT isfinite(s.plan) THEN NULL ELSE s.plan END NULLS LAST, s.id LIMIT $1
     ), timed AS MATERIALIZED (
       SELECT s.*, ${comingTimes(table, shownTimes)} AS next,
         s.rule IS NOT NULL AND NOT s.is_query AND ${identifier(table.schema)}.task_upcoming(s.rule, s.zone, s.since, 1) IS NULL AS broken
       FROM listed AS s
     )
     SELECT s.id::text AS id, s.parent::text AS parent, s."group", s.key, s.role, s.rule, s.zone,
       CASE WHEN s.repeat > interval '0' THEN s.repeat::text END AS repeat,
       CASE WHEN s.repeat > interval '0' THEN ${millisecondsSql("s.repeat")} END AS "repeatMs", s.max::float8 AS max, s.drift, s.catchup, s.overlap, s.state,
       CASE WHEN NOT s.computes AND s.owed IS NULL AND isfinite(s.plan) THEN ${isoTimeSql("s.plan")} END AS plan,
       CASE WHEN s.state = 'PLAN' AND NOT s.computes AND isfinite(s.plan) AND s.plan <= clock_timestamp()
         THEN ${millisecondsSql("clock_timestamp() - s.plan")} END AS "overdueMs",
       coalesce((SELECT json_agg(json_build_object('at', ${isoTimeSql("n.at")},
         'wall', CASE WHEN NOT s.broken AND s.zone IS NOT NULL AND isfinite(n.at) THEN ${wallSql("n.at")} END) ORDER BY n.place)
         FROM unnest(s.next) WITH ORDINALITY AS n(at, place)), '[]') AS next,
       ${isPausedSchedule(table)} AS paused, s.halted AS "pausedItself", s.suspended_after::float8 AS "suspendedAfter", s.owed, s.broken, substr(s.input, 1, $2) AS input,
       s.failed_tries::float8 AS "failedTries", s.try_error AS "tryError"
     FROM timed AS s
     ORDER BY CASE WHEN s.computes OR NOT isfinite(s.plan) THEN NULL ELSE s.plan END NULLS LAST, s.id`,
    values,
  );
  const listed = rows.slice(0, limit);
  const past = await readPastRuns(client, table, listed, runs);
  const schedules: Schedule[] = [];
  for (const { parent: _, broken, ...row } of listed) {
    const problem = broken ? await readRuleProblem(client, table, row) : null;
    schedules.push({ ...row, problem, last: past.get(row.id) ?? [] });
  }
  return { schedules, more: rows.length > limit };
}

/** Newest first, with the row itself if it has ended. A task that inserted the first row of a schedule is no run. */
async function readPastRuns(
  client: Client,
  { qualified }: TaskTable,
  schedules: readonly { readonly id: string }[],
  runs: number,
): Promise<Map<string, PastRun[]>> {
  const { rows } = await client.query<PastRun & { schedule: string }>(
    `WITH RECURSIVE run AS (
       SELECT t.id::bigint AS schedule, 0 AS depth, t.parent::bigint AS parent, t.input::text AS input, t.repeat, t.rule, t.key,
         t.id::bigint AS id
       FROM ${qualified} AS t WHERE t.id = ANY ($1::bigint[])
       UNION ALL
       SELECT s.schedule, s.depth + 1, l.parent::bigint, s.input, s.repeat, s.rule, s.key, l.id::bigint
       FROM run AS s JOIN ${qualified} AS l ON ${isLastRun()}
       WHERE s.depth < $2
     )
     SELECT s.schedule::text AS schedule, t.id::text AS id, t.state::text AS state, ${isoTimeSql("t.start")} AS start,
       ${isoTimeSql("t.stop")} AS stop,
       CASE WHEN isfinite(t.stop::timestamptz) THEN ${millisecondsSql("t.stop::timestamptz - t.start::timestamptz")} END AS "tookMs",
       ${firstLineSql("t.error")} AS error
     FROM run AS s JOIN ${qualified} AS t ON t.id = s.id WHERE s.depth > 0 OR t.state::text IN ('DONE', 'FAIL', 'GONE') ORDER BY s.schedule, s.depth`,
    [schedules.map(({ id }) => id), runs],
  );
  const found = new Map<string, PastRun[]>();
  for (const { schedule, ...run } of rows) {
    const all = found.get(schedule) ?? [];
    if (all.length < runs) all.push(run);
    found.set(schedule, all);
  }
  return found;
}

async function readRuleProblem(
  client: Client,
  { schema }: TaskTable,
  { rule, zone }: Pick<Schedule, "rule" | "zone">,
): Promise<string | null> {
  try {
    await client.query(`SELECT ${identifier(schema)}.task_next($1::text, $2::text, now())`, [rule, zone]);
    return null;
  } catch (error) {
    if (sqlState(error) === null) throw error;
    return errorMessage(error);
  }
}

export interface RuleTime {
  /** ISO 8601 with the UTC offset of the session's time zone. */
  readonly at: string;
  /** The clock's reading in the rule's zone, such as `2027-03-28 03:00:00`. */
  readonly wall: string;
  /** The zone's offset from UTC at this time, such as `+02:00`. */
  readonly offset: string;
  /** What a change of the clocks does to this time. Null if nothing. */
  readonly note: string | null;
}

export interface RuleTimes {
  readonly zone: string;
  readonly times: readonly RuleTime[];
}

interface RuleTimesRequest {
  readonly rule: string;
  /** Null means that of an INSERT: the one of the rule, else `pg_task.zone` of the session, else `defaultZone`. */
  readonly zone: string | null;
  /** `pg_task.zone` of the configuration. Empty means the time zone of the session. */
  readonly defaultZone: string;
  /** The first time is later than this one, which is in the zone of the rule unless it names another. Null is now. */
  readonly since: string | null;
  readonly count: number;
}

/**
 * If no manager has created the functions in the schema, temporary ones are created in a transaction that is rolled
 * back, so that this works in any database and leaves nothing behind.
 *
 * @throws an error of the server with SQLSTATE 22023 if the rule or the zone is invalid
 */
export async function readRuleTimes(client: Client, schema: string, request: RuleTimesRequest): Promise<RuleTimes> {
  const isThere = await queryValue<boolean>(
    client,
    `SELECT pg_catalog.to_regprocedure($1 || '.task_times(text, text, timestamptz, integer)') IS NOT NULL
       AND pg_catalog.to_regprocedure($1 || '.task_rule_zone(text)') IS NOT NULL AS there`,
    [identifier(schema)],
  );
  await client.query(isThere ? "BEGIN" : "BEGIN READ WRITE");
  try {
    if (isThere) return await queryTimes(client, identifier(schema), request);
    await client.query(calendarText.replaceAll(':"schema"', "pg_temp"));
    return await queryTimes(client, "pg_temp", request);
  } finally {
    await client.query("ROLLBACK");
  }
}

async function queryTimes(
  client: Client,
  calendar: string,
  { rule, zone, defaultZone, since, count }: RuleTimesRequest,
): Promise<RuleTimes> {
  const used = await queryValue<string>(
    client,
    `SELECT coalesce($2::text, ${calendar}.task_rule_zone($1::text), nullif(current_setting('pg_task.zone', true), ''),
       nullif($3::text, ''), current_setting('TimeZone')) AS zone`,
    [rule, zone, defaultZone],
  );
  const after = since === null ? null : await readTime(client, calendar, since, used);
  const { rows } = await client.query<RuleTime>(
    `SELECT ${isoTimeSql("n.time")} AS at, to_char(n.wall, 'YYYY-MM-DD HH24:MI:SS') AS wall,
       ${offsetSql("n.wall - (n.time AT TIME ZONE 'UTC')")} AS offset, n.note
     FROM ${calendar}.task_times($1::text, $2::text, coalesce($3::timestamptz, statement_timestamp()), $4::integer) AS n`,
    [rule, used, after, count],
  );
  return { zone: used, times: rows };
}

/** As the clock of the zone shows it, unless the text names another zone. Only in a transaction. */
async function readTime(client: Client, calendar: string, text: string, zone: string): Promise<string> {
  const { rows: settings } = await client.query<{ own: string }>(
    `SELECT current_setting('TimeZone') AS own, ${calendar}.task_zone_check($1::text)`,
    [zone],
  );
  const setZone = async (name: string): Promise<unknown> =>
    await client.query("SELECT set_config('TimeZone', $1::text, true)", [name]);
  await setZone(zone);
  const time = await queryValue<string>(client, `SELECT ${isoTimeSql("$1::timestamptz")} AS time`, [text]);
  await setZone(settings[0]?.own ?? "UTC");
  return time;
}
