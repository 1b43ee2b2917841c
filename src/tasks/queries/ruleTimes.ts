import { calendarText } from "../../manager/schema/calendar.js";
import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { isoTimeSql } from "../sqlFragments.js";
import { offsetSql } from "./schedules.js";

/** A time of a rule. */
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
  /** The time zone of the rule. */
  readonly zone: string;
  readonly times: readonly RuleTime[];
}

export interface RuleTimesRequest {
  readonly rule: string;
  /**
   * Null means the zone that an INSERT without `zone` gets: the one that the rule names, else `pg_task.zone` of the
   * session, else `defaultZone`.
   */
  readonly zone: string | null;
  /** `pg_task.zone` of the configuration. Empty means the time zone of the session. */
  readonly defaultZone: string;
  /**
   * The first time is later than this one, given in PostgreSQL's syntax. Without a zone of its own, it is in the zone of
   * the rule. Null means now.
   */
  readonly since: string | null;
  /** How many times are returned at most. */
  readonly count: number;
}

/**
 * Returns the next times of a rule. Uses the functions of the schema if a manager has created them there. Otherwise,
 * creates temporary ones in a transaction that is rolled back, so that they work in any database and leave nothing
 * behind.
 *
 * @throws an error of the server with SQLSTATE 22023 if the rule or the zone is invalid
 */
export async function readRuleTimes(client: Client, schema: string, request: RuleTimesRequest): Promise<RuleTimes> {
  const { rows } = await client.query<{ there: boolean }>(
    `SELECT pg_catalog.to_regprocedure($1 || '.task_times(text, text, timestamptz, integer)') IS NOT NULL
       AND pg_catalog.to_regprocedure($1 || '.task_rule_zone(text)') IS NOT NULL AS there`,
    [identifier(schema)],
  );
  const isThere = rows[0]?.there === true;
  await client.query(isThere ? "BEGIN" : "BEGIN READ WRITE");
  try {
    if (isThere) return await queryTimes(client, identifier(schema), request);
    await client.query(calendarText.replaceAll(':"schema"', "pg_temp"));
    return await queryTimes(client, "pg_temp", request);
  } finally {
    await client.query("ROLLBACK");
  }
}

/** Must be called in a transaction. */
async function queryTimes(
  client: Client,
  calendar: string,
  { rule, zone, defaultZone, since, count }: RuleTimesRequest,
): Promise<RuleTimes> {
  const { rows: zones } = await client.query<{ zone: string }>(
    `SELECT coalesce($2::text, ${calendar}.task_rule_zone($1::text), nullif(current_setting('pg_task.zone', true), ''),
       nullif($3::text, ''), current_setting('TimeZone')) AS zone`,
    [rule, zone, defaultZone],
  );
  const used = zones[0]?.zone ?? "UTC";
  const after = since === null ? null : await readTime(client, calendar, since, used);
  const { rows } = await client.query<RuleTime>(
    `SELECT ${isoTimeSql("n.time")} AS at, to_char(n.wall, 'YYYY-MM-DD HH24:MI:SS') AS wall,
       ${offsetSql("n.wall - (n.time AT TIME ZONE 'UTC')")} AS offset, n.note
     FROM ${calendar}.task_times($1::text, $2::text, coalesce($3::timestamptz, statement_timestamp()), $4::integer) AS n`,
    [rule, used, after, count],
  );
  return { zone: used, times: rows };
}

/**
 * Reads a time as the clock of the zone shows it, unless the text names another zone. Must be called in a transaction.
 *
 * @returns the time in ISO 8601
 */
async function readTime(client: Client, calendar: string, text: string, zone: string): Promise<string> {
  const { rows: settings } = await client.query<{ own: string }>(
    `SELECT current_setting('TimeZone') AS own, ${calendar}.task_zone_check($1::text)`,
    [zone],
  );
  const setZone = async (name: string): Promise<unknown> =>
    await client.query("SELECT set_config('TimeZone', $1::text, true)", [name]);
  await setZone(zone);
  const { rows } = await client.query<{ time: string }>(`SELECT ${isoTimeSql("$1::timestamptz")} AS time`, [text]);
  await setZone(settings[0]?.own ?? "UTC");
  return rows[0]?.time ?? text;
}
