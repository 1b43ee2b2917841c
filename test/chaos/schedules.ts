import type { Client } from "../../src/shared/postgres/client.js";
import type { Random } from "./random.js";

/** A schedule that repeats every few seconds, and what its chain of runs must look like, whatever faults occurred. */
export interface Schedule {
  /** The schedule's name, which is in the column `data` of its rows. */
  readonly name: string;
  readonly columns: Readonly<Record<string, string | number | boolean>>;
  /** SQL that the runs execute after they have recorded their effect. */
  readonly rest: string;
  /** Whether the schedule ends by itself. */
  readonly ends: boolean;
  /** How many runs it has in total, if that is certain. */
  readonly runs?: number;
  /** Whether the run of this row fails. */
  readonly fails: (id: bigint) => boolean;
  /**
   * If the rule is a query: whether a time, in µs, is one that the query returns after the previous run. All other
   * schedules are compared with the times that the server computes from the rule.
   */
  readonly follows?: (previous: PreviousRun, time: number) => boolean;
}

interface PreviousRun {
  readonly state: string;
  readonly time: number;
}

type Kind = Omit<Schedule, "name" | "rest" | "ends" | "fails"> & Partial<Schedule>;

/** `active` of most schedules. No test takes this long, so their runs never expire. */
const long = "1 day";
const second = 1e6;
const sleep = (most: number): string => `SELECT pg_sleep(random() * ${most})`;
/** A query takes some time, so that faults also occur while it runs. */
const slowly = "(SELECT pg_sleep(0.1 * random())) IS NOT NULL";
const ownRow = "id = current_setting('pg_task.id')::bigint";

/** Fractions of a second in the times of the query `byState`, by the state of the previous run. */
const fractions: Readonly<Record<string, number>> = { DONE: 0.5, FAIL: 0.25, WORK: 0.75 };

const byState = `SELECT date_trunc('second', now()) + interval '1 second' + interval '1 second' *
  CASE current_setting('pg_task.state') WHEN 'DONE' THEN 0.5 WHEN 'FAIL' THEN 0.25 WHEN 'WORK' THEN 0.75 ELSE 0 END
  WHERE ${slowly}`;

const followsState = ({ state, time: last }: PreviousRun, time: number): boolean =>
  time > last && Math.abs((time % second) - (fractions[state] ?? 0) * second) < 1;

/**
 * Returns a schedule of each kind.
 *
 * @param period time between two runs, in seconds
 * @param count number of times of the rules that end by themselves
 */
function kinds(period: number, count: number): Readonly<Record<string, Kind>> {
  const cron = `*/${period} * * * * *`;
  const secondly = `FREQ=SECONDLY;INTERVAL=${period}`;
  return {
    cron: { columns: { rule: cron } },
    "cron, catchup": { columns: { rule: cron, catchup: true } },
    "cron, a long run now and then": { columns: { rule: cron }, rest: sleep(period * 1.2) },
    "cron, overlap": { columns: { rule: cron, overlap: true, max: 0 }, rest: sleep(period * 1.2) },
    "cron, overlap, max 2": { columns: { rule: cron, overlap: true, max: 2 }, rest: sleep(period * 1.3) },
    "cron, overlap, catchup": { columns: { rule: cron, overlap: true, catchup: true, max: 1 }, rest: sleep(0.3) },
    "cron, every other run fails": { columns: { rule: cron, catchup: true }, ...failing },
    // Retries must not move the schedule.
    "cron, retry": {
      columns: { rule: cron, catchup: true, retry: 2, backoff: "20 ms" },
      rest: `SELECT 1 / coalesce(attempt, 0) FROM task WHERE ${ownRow}`,
    },
    "cron, expires": { columns: { rule: cron, active: "1.5 seconds" } },
    "cron, expires, catchup": { columns: { rule: cron, active: "2.5 seconds", catchup: true } },
    "cron, overlap, expires": {
      columns: { rule: cron, active: "2 seconds", overlap: true, max: 0 },
      rest: sleep(period * 0.6),
    },
    "cron, pauses": { columns: { rule: cron, catchup: true, max: -200, group: "schedules that pause" } },
    "cron, held by its user": { columns: { rule: cron, catchup: true } },
    "cron, suspends": {
      columns: { rule: cron, catchup: true, suspend: 2 },
      rest: "SELECT 1 / 0",
      fails: () => true,
    },
    // The group counts, and pauses.
    "cron, overlap, suspends": { columns: { rule: cron, overlap: true, suspend: 2 }, ...failing },
    "repeat, retry, suspends": {
      columns: { repeat: `${period} seconds`, suspend: 2, retry: 1, backoff: "20 ms" },
      ...failing,
      rest: `SELECT 1 / (coalesce(attempt, 0) * (id % 2)) FROM task WHERE ${ownRow}`,
    },
    "query, suspends": { columns: { rule: byState, suspend: 2 }, ...failing, follows: followsState },
    repeat: { columns: { repeat: `${period} seconds` } },
    "repeat, catchup": { columns: { repeat: `${period} seconds`, catchup: true } },
    "repeat, overlap": { columns: { repeat: `${period} seconds`, overlap: true, max: 1 }, rest: sleep(period * 1.2) },
    "count, catchup": { columns: { rule: `${secondly};COUNT=${count}`, catchup: true }, ends: true, runs: count },
    count: { columns: { rule: `${secondly};COUNT=${count}` }, ends: true },
    "count, overlap": {
      columns: { rule: `${secondly};COUNT=${count}`, overlap: true, catchup: true },
      ends: true,
      runs: count,
    },
    "query, steps": {
      columns: { rule: `SELECT plan + interval '${period} seconds' FROM task WHERE ${ownRow} AND ${slowly}` },
      follows: ({ time: last }, time) => time === last + period * second,
    },
    "query, state": { columns: { rule: byState }, ...failing, follows: followsState },
    "query, overlap": {
      columns: { rule: byState, overlap: true, max: 1 },
      rest: sleep(period * 0.6),
      // With overlap, the query runs at the start of the previous run, or at its end if the successor could not be
      // planned at the start.
      follows: (previous, time) => followsState({ ...previous, state: "WORK" }, time) || followsState(previous, time),
    },
    "query, ends": {
      columns: {
        rule: `SELECT CASE WHEN count(*) <= ${count} THEN now() + interval '1 second' END FROM task
          WHERE data = (SELECT data FROM task WHERE ${ownRow}) AND ${slowly}`,
      },
      ends: true,
      runs: count,
      follows: ({ time: last }, time) => time > last,
    },
  };
}

const failing = {
  rest: "SELECT 1 / (current_setting('pg_task.id')::bigint % 2)",
  fails: (id: bigint) => id % 2n === 0n,
};

/** Whether the schedule itself pauses after failures, and not its group. */
export const isSuspended = ({ columns }: Pick<Schedule, "columns">): boolean =>
  columns["suspend"] !== undefined && columns["overlap"] !== true;

/** Returns the schedules of a test that takes this many seconds. */
export function schedulesFor(seconds: number): Schedule[] {
  return (seconds < 60 ? [2] : [2, 3]).flatMap((period) =>
    Object.entries(kinds(period, Math.max(3, Math.floor(seconds / period / 2)))).map(([kind, schedule]) => ({
      rest: "",
      ends: false,
      fails: () => false,
      ...schedule,
      name: `schedule ${period}: ${kind}`,
      columns: {
        group: `schedule ${period}: ${kind}`,
        max: 0,
        active: long,
        // Schedules are resumed by their keys.
        ...(isSuspended(schedule) ? { key: `schedule ${period}: ${kind}` } : {}),
        ...schedule.columns,
      },
    })),
  );
}

/** SQL condition that is true for the rows of schedules. */
export const isScheduled = "coalesce(data LIKE 'schedule %', false)";

/** SQL of the time for which a row runs, which is not its `plan` if that was moved. */
export const servedTime = "coalesce(due, plan)";

const carries = "(rule IS NOT NULL OR repeat > interval '0')";

/** Inserts the first task of each schedule. */
export async function startSchedules(client: Client, schedules: readonly Schedule[]): Promise<void> {
  await client.query(`CREATE TABLE served (task bigint NOT NULL, time timestamptz NOT NULL);
    -- The suspended schedules and groups that were resumed, and when.
    CREATE TABLE resumed (task bigint NOT NULL, failures integer, at timestamptz NOT NULL);
    CREATE TABLE resumed_group ("group" text NOT NULL, reason text, since timestamptz NOT NULL, until timestamptz NOT NULL);
    CREATE TABLE schedule (name text PRIMARY KEY, root bigint, rule text, zone text, repeat interval, first timestamptz)`);
  const record = `INSERT INTO served (task, time) SELECT id, ${servedTime} FROM task WHERE ${ownRow}`;
  for (const { name, columns, rest } of schedules) {
    const names = ["data", "input", ...Object.keys(columns).map((column) => `"${column}"`)];
    const places = names.map((_, index) => `$${index + 1}`);
    await client.query(
      `WITH root AS (
         INSERT INTO task (${names.join(", ")}, plan) VALUES (${places.join(", ")}, date_trunc('second', now()))
         RETURNING id, data, rule, zone, repeat, plan
       ) INSERT INTO schedule SELECT data, id, rule, zone, repeat, plan FROM root`,
      [name, rest === "" ? record : `${record}; ${rest}`, ...Object.values(columns)],
    );
  }
}

/** Now and then, pauses the schedules that are meant for it, or resumes them and those that are suspended. */
export async function holdSchedules(client: Client, random: Random): Promise<void> {
  if (random.below(20) > 0) return;
  const change = random.below(3) > 0 ? letGo : "plan = 'infinity' WHERE plan < 'infinity'";
  await client.query(`UPDATE task SET ${change} AND data LIKE 'schedule _: % held by its user' AND state = 'PLAN'`);
  if (random.below(2) === 0) await resumeSuspended(client);
}

/** Resumes what is suspended, and notes it in the same transaction. */
async function resumeSuspended(client: Client): Promise<void> {
  await client.query(
    `WITH suspended AS MATERIALIZED (
       SELECT id, key, failures FROM task
       WHERE ${isScheduled} AND suspend > 0 AND state = 'PLAN' AND plan = 'infinity' FOR UPDATE SKIP LOCKED
     ) INSERT INTO resumed SELECT id, failures, clock_timestamp() FROM suspended WHERE task_resume(key)`,
  );
  await client.query(
    `WITH resumed AS (DELETE FROM task_pause WHERE "group" LIKE 'schedule %' RETURNING "group", reason, since)
     INSERT INTO resumed_group SELECT "group", reason, since, clock_timestamp() FROM resumed`,
  );
}

const letGo = "plan = due WHERE plan = 'infinity' AND due IS NOT NULL AND suspend IS NULL";

export async function letSchedulesGo(client: Client): Promise<void> {
  await client.query(`UPDATE task SET ${letGo} AND ${isScheduled} AND state = 'PLAN'`);
}

/**
 * Returns the schedules that have not run for a time after `since` yet or, if they end by themselves, that have not ended.
 * Each has the number of its runs so far, which grows as long as it goes on.
 */
export async function waitingSchedules(
  client: Client,
  schedules: readonly Schedule[],
  since: string,
): Promise<object[]> {
  await resumeSuspended(client);
  const { rows } = await client.query(
    `SELECT name, (SELECT count(*)::integer FROM task WHERE data = name AND stop IS NOT NULL) AS runs FROM schedule WHERE CASE WHEN name = ANY ($1)
       THEN EXISTS (SELECT FROM task WHERE data = name AND state IN ('PLAN', 'TAKE', 'WORK'))
       ELSE NOT EXISTS (SELECT FROM task WHERE data = name AND state IN ('DONE', 'FAIL', 'GONE') AND ${servedTime} > $2)
     END ORDER BY name`,
    [schedules.filter(({ ends }) => ends).map(({ name }) => name), since],
  );
  return rows;
}

/**
 * Stops the waiting rows of all schedules.
 *
 * @returns the rows of schedules that have not ended yet. Their successors have to be stopped as well.
 */
export async function stopSchedules(client: Client): Promise<object[]> {
  // With overlap, a row that has passed its schedule on and returned to PLAN still has to run.
  await resumeSuspended(client);
  await client.query(`UPDATE task SET state = 'STOP' WHERE ${isScheduled} AND state = 'PLAN' AND ${carries}`);
  const { rows } = await client.query(
    `SELECT id, data, state FROM task WHERE ${isScheduled} AND (state IN ('PLAN', 'TAKE', 'WORK') OR owner IS NOT NULL)`,
  );
  return rows;
}
