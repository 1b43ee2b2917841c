import { createCalendar } from "../../../../../src/manager/schema/calendar.js";
import { taskTable } from "../../../../../src/manager/schema/taskTable.js";
import type { Client } from "../../../../../src/shared/postgres/client.js";
import type { TestDatabase } from "../../../../support/database.js";

/** The schema of the calendar. Its name needs quoting, and contains the dollar quote of the functions' bodies. */
export const schema = `"cal""endar$function$"`;

export interface CronCase {
  readonly rule: string;
  readonly zone: string;
  readonly since: string;
}

/** Opens a connection to a database with the calendar. None of the session's settings may change a result. */
export async function connectCalendar(database: TestDatabase): Promise<Client> {
  const client = await database.connect();
  await client.query(`CREATE SCHEMA ${schema}`);
  await createCalendar(client, taskTable(`cal"endar$function$`, "task"));
  await client.query(`
    SET timezone = 'America/St_Johns'; SET datestyle = 'German'; SET intervalstyle = 'sql_standard';
    CREATE FUNCTION next_time(rule text, zone text, since timestamptz) RETURNS text LANGUAGE plpgsql
      SET search_path = pg_catalog, pg_temp AS $$
    DECLARE
      detail text;
      hint text;
    BEGIN
      RETURN to_char(${schema}.task_cron_next(rule, zone, since) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"');
    EXCEPTION WHEN OTHERS THEN
      GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
      RETURN concat_ws(' | ', SQLSTATE, SQLERRM, nullif(detail, ''), nullif(hint, ''));
    END $$;
    CREATE FUNCTION next_times(rule text, zone text, since timestamptz, count int) RETURNS text[] LANGUAGE plpgsql AS $$
    DECLARE
      times text[] := '{}';
    BEGIN
      FOR i IN 1..count LOOP
        times := times || next_time(rule, zone, since);
        EXIT WHEN times[i] NOT LIKE '%Z';
        since := times[i]::timestamptz;
      END LOOP;
      RETURN times;
    END $$`);
  return client;
}

/** Returns the next time of each case, or the error with its SQLSTATE, message, detail and hint. */
export async function nextTimes(client: Client, cases: readonly CronCase[]): Promise<string[]> {
  const { rows } = await client.query<{ next: string }>(
    `SELECT next_time(rule, zone, since::timestamptz) AS next
     FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS c (rule, zone, since, n) ORDER BY n`,
    [cases.map(({ rule }) => rule), cases.map(({ zone }) => zone), cases.map(({ since }) => since)],
  );
  return rows.map(({ next }) => next);
}

export async function firstTimes(
  client: Client,
  { rule, zone, since }: CronCase,
  count: number,
): Promise<readonly string[]> {
  const { rows } = await client.query<{ times: string[] }>(
    "SELECT next_times($1, $2, $3::text::timestamptz, $4) AS times",
    [rule, zone, since, count],
  );
  return rows[0]?.times ?? [];
}
