import type { Client } from "../../src/shared/postgres/client.js";
import { isScheduled, isSuspended, servedTime, type Schedule } from "./schedules.js";

/** A row of a schedule. Times are in µs since 1970. */
export interface ScheduledRow {
  readonly id: string;
  readonly parent: string | null;
  readonly state: string;
  /** The time of the schedule for which it runs. */
  readonly time: number;
  readonly plan: number;
  readonly created: number;
  readonly take: number | null;
  readonly start: number | null;
  readonly stop: number | null;
  /** When the last transaction that wrote the row was committed. */
  readonly written: number;
  /** The times that its runs have recorded as their effects. */
  readonly effects: readonly number[];
  readonly error: string | null;
  /** Null if it was not planned, because the schedule was suspended after so many failures, until it was resumed, if it was. */
  readonly suspension: { readonly failures: number; readonly until: number | null } | null;
}

/** A schedule, and what the server computes from its columns. Times and intervals are in µs. */
export interface Expectation extends Pick<Schedule, "name" | "columns" | "ends" | "runs" | "fails" | "follows"> {
  readonly root: string;
  readonly active: number;
  /** The times of its rule or interval from the first one on. Empty if the rule is a query. */
  readonly grid: readonly number[];
  /** From when until when no successor could be inserted before a run, or no schedule removed from the run's row. */
  readonly refusals: readonly { readonly since: number; readonly until: number }[];
  /** The pauses of its group. */
  readonly pauses: readonly { readonly reason: string | null; readonly since: number; readonly until: number | null }[];
}

export interface Judgement {
  readonly runs: number;
  readonly suspensions: number;
  readonly wrong: readonly string[];
}

/** Judges the chain of each schedule, after all of them have been stopped. */
export async function judgeSchedules(client: Client, schedules: readonly Schedule[]): Promise<Judgement> {
  await client.query("CREATE INDEX ON served (task)");
  const wrong: string[] = [];
  let [runs, suspensions] = [0, 0];
  for (const schedule of schedules) {
    const rows = await readRows(client, schedule.name);
    const expectation = await expectationOf(client, schedule);
    wrong.push(...judgeSchedule(expectation, rows));
    runs += rows.filter(({ state }) => state !== "STOP").length;
    suspensions += rows.filter(({ suspension }) => suspension !== null).length + expectation.pauses.length;
  }
  const { rows: strays } = await client.query<{ stray: string }>(
    `SELECT row_to_json(s)::text AS stray FROM served AS s WHERE task NOT IN (SELECT id FROM task WHERE ${isScheduled})`,
  );
  return { runs, suspensions, wrong: [...wrong, ...strays.map(({ stray }) => `effect without a row: ${stray}`)] };
}

const micros = (time: string): string => `(extract(epoch FROM ${time}) * 1e6)::float8`;

async function readRows(client: Client, name: string): Promise<ScheduledRow[]> {
  const { rows } = await client.query<ScheduledRow>(
    `SELECT id::text AS id, parent::text AS parent, state::text AS state, error, ${micros(servedTime)} AS time,
       ${["plan", "created", "take", "start", "stop"].map((time) => `${micros(time)} AS ${time}`).join(", ")},
       ${micros("pg_xact_commit_timestamp(xmin)")} AS written,
       ARRAY(SELECT ${micros("time")} FROM served WHERE task = t.id) AS effects,
       coalesce((SELECT jsonb_build_object('failures', r.failures, 'until', ${micros("at")}) FROM resumed AS r WHERE r.task = t.id),
         CASE WHEN suspend > 0 AND plan = 'infinity' THEN jsonb_build_object('failures', failures, 'until', NULL) END) AS suspension
     FROM task AS t WHERE data = $1 ORDER BY t.id`,
    [name],
  );
  return rows;
}

async function expectationOf(client: Client, schedule: Schedule): Promise<Expectation> {
  const times =
    schedule.follows === undefined
      ? `ARRAY(SELECT ${micros("time")} FROM public.task_times(s.rule, s.zone, first - interval '1 microsecond', seconds)
           WHERE s.rule IS NOT NULL
         UNION ALL SELECT ${micros("time")} FROM generate_series(first, now(), nullif(repeat, interval '0')) AS time)`
      : "'{}'::float8[]";
  const { rows: refusals } = await client.query<Expectation["refusals"][number]>(
    `SELECT ${micros("since")} AS since, ${micros("until")} AS until FROM audit_failure WHERE operations ~ 'INSERT|UPDATE|LOCK'`,
  );
  const { rows: pauses } = await client.query<Expectation["pauses"][number]>(
    `SELECT reason, ${micros("since")} AS since, ${micros("until")} AS until FROM (
       SELECT * FROM resumed_group UNION ALL SELECT "group", reason, since, NULL FROM task_pause) AS p
     WHERE "group" = $1 ORDER BY since`,
    [schedule.name],
  );
  const { rows } = await client.query<{ root: string; active: number; grid: number[] }>(
    `SELECT root::text AS root, ${micros("$2::interval")} AS active, ${times} AS grid
     FROM (SELECT *, ceil(extract(epoch FROM now() - first))::integer + 10 AS seconds FROM schedule) AS s WHERE name = $1`,
    [schedule.name, schedule.columns["active"]],
  );
  const [found] = rows;
  if (found === undefined) throw new Error(`no schedule ${schedule.name}`);
  return { ...schedule, ...found, refusals, pauses };
}

/**
 * Returns what is wrong with the rows of a schedule that was stopped, or that has ended by itself.
 *
 * @param rows ordered by id
 */
export function judgeSchedule(expected: Expectation, rows: readonly ScheduledRow[]): string[] {
  return [
    ...wrongLinks(expected, rows),
    ...rows.flatMap((row, index) => (index === 0 ? [] : wrongStep(expected, rows[index - 1] ?? row, row))),
    ...wrongEnd(expected, rows),
    ...rows.flatMap((row) => wrongOutcome(expected, row)),
    ...crowded(expected, rows),
    ...wrongSuspensions(expected, rows),
    ...wrongPauses(expected, rows),
  ].map((what) => `${expected.name}: ${what}`);
}

/** Each row but the first must be the only successor of the one before. */
function wrongLinks({ root }: Expectation, rows: readonly ScheduledRow[]): string[] {
  return rows.flatMap(({ id, parent }, index) => {
    if (index === 0) return id === root ? [] : [`it begins with ${id} instead of ${root}`];
    const previous = rows[index - 1]?.id;
    return parent === previous ? [] : [`${id} follows ${previous} but is the successor of ${parent}`];
  });
}

/** How much the clocks of the executor and the server can differ, in µs. Start and stop are read from the former. */
const clockError = 5000;

/** Times have to grow, to be times of the rule, and to leave out only what may be left out. */
function wrongStep(expected: Expectation, previous: ScheduledRow, row: ScheduledRow): string[] {
  const wrong: string[] = [];
  const ran = previous.state === "DONE" || previous.state === "FAIL";
  const { take, start } = previous;
  // What cannot be inserted before the run is inserted after it.
  const isRefused = expected.refusals.some(({ since, until }) => since < (start ?? 0) && until > (take ?? 0));
  // What stops the schedules in the end can lock the row of a run that starts meanwhile: it waits for the claim, and then
  // locks the changed row before it finds that it must not be stopped.
  const isLate = row.created > (start ?? 0) + clockError && row.state !== "STOP";
  if (expected.columns["overlap"] === true && ran && !isRefused && isLate)
    wrong.push(`planned after the start: ${show(previous, row)}`);
  if (row.time <= previous.time) wrong.push(`not later than the time before: ${show(previous, row)}`);
  // A stopped row may not have been planned yet.
  if (expected.follows !== undefined) {
    if (row.state !== "STOP" && !expected.follows(previous, row.time))
      wrong.push(`not a time of the query: ${show(previous, row)}`);
    return row.state === "STOP" ? [] : wrong;
  }
  const { grid, columns, active } = expected;
  const isFuture = row.state === "STOP" && row.time > (grid.at(-1) ?? 0);
  if (!grid.includes(row.time) && !isFuture) wrong.push(`not a time of the rule: ${show(row)}`);
  // Without catchup, times that had passed when the successor was planned are left out, and in any case those before a
  // suspended schedule was resumed. No others may be missing.
  const resumed = row.suspension?.until ?? null;
  const catchesUp = columns["catchup"] === true && resumed === null;
  const planned = resumed ?? row.created;
  const over = planned - (catchesUp ? active : 0);
  const missing = grid.filter((time) => time > previous.time && time < row.time && time > over);
  if (missing.length > 0) wrong.push(`missing ${String(missing.map(iso))}: ${show(previous, row)}`);
  // The server's now() is older than `created` if other statements came before in the same transaction.
  if (!catchesUp && row.time < planned - 1e6) wrong.push(`made up for: ${show(previous, row)}`);
  return wrong;
}

/** The last row has to carry the schedule, and no other row may, unless the schedule is over. */
function wrongEnd(expected: Expectation, rows: readonly ScheduledRow[]): string[] {
  const { ends, runs, grid, columns, active } = expected;
  const last = rows.at(-1);
  if (last === undefined) return ["it has no rows"];
  const stopped = rows.filter(({ state }) => state === "STOP");
  if (!ends)
    return stopped.length === 1 && last.state === "STOP" ? [] : [`${stopped.length} rows waited: ${show(last)}`];
  if (stopped.length > 0) return [`it should be over: ${show(...stopped)}`];
  const over = last.written - (columns["catchup"] === true ? active : 0);
  const missing = grid.filter((time) => time > last.time && time > over);
  return [
    ...(missing.length > 0 ? [`it ended before ${missing.length} of its times: ${show(last)}`] : []),
    ...(runs !== undefined && rows.length !== runs ? [`${rows.length} runs instead of ${runs}`] : []),
  ];
}

/** A run has its effect exactly once if its row is DONE, and none otherwise. */
function wrongOutcome({ active, fails }: Expectation, row: ScheduledRow): string[] {
  const { state, time, effects, plan } = row;
  const wrong: string[] = [];
  if (state === "DONE" ? effects.length !== 1 || effects[0] !== time : effects.length > 0) wrong.push("effects");
  const isExpected =
    state === "STOP" ||
    (state === "GONE"
      ? (row.start ?? 0) >= plan + active
      : (row.take ?? 0) < plan + active && state === (fails(BigInt(row.id)) ? "FAIL" : "DONE"));
  if (!isExpected) wrong.push("state");
  return wrong.map((what) => `wrong ${what}: ${show(row)}`);
}

/** A run must not start while more than `max` others run. */
function crowded({ columns }: Expectation, rows: readonly ScheduledRow[]): string[] {
  const most = Math.max(0, Number(columns["max"]));
  const ran = rows.filter(({ state }) => state === "DONE" || state === "FAIL");
  return ran.flatMap((row) => {
    const start = row.start ?? 0;
    const beside = ran.filter(
      (other) => other !== row && (other.start ?? 0) <= start && (other.stop ?? Infinity) > start,
    );
    return beside.length > most ? [`too many at once: ${show(row, ...beside)}`] : [];
  });
}

/** A schedule must be suspended after exactly so many failures in a row, and must not run until it is resumed. */
function wrongSuspensions(expected: Expectation, rows: readonly ScheduledRow[]): string[] {
  if (!isSuspended(expected)) return [];
  let failures = 0;
  return rows.flatMap((row) => {
    const { suspension, state, take } = row;
    const before = failures >= Number(expected.columns["suspend"]) ? failures : null;
    if (before !== null) failures = 0;
    if (state === "FAIL") failures += 1;
    if (state === "DONE") failures = 0;
    const after = suspension?.failures ?? null;
    return [
      ...(after === before ? [] : [`suspended after ${after} failures instead of ${before}: ${show(row)}`]),
      ...(suspension !== null && take !== null && take < (suspension.until ?? Infinity)
        ? [`ran while it was suspended: ${show(row)}`]
        : []),
    ];
  });
}

/** The same for a group, whose runs follow each other. */
function wrongPauses({ columns, pauses }: Expectation, rows: readonly ScheduledRow[]): string[] {
  if (columns["suspend"] === undefined || columns["overlap"] !== true) return [];
  const ran = rows.filter(({ state }) => state === "DONE" || state === "FAIL");
  let failures = 0;
  const due = ran
    .toSorted((a, b) => (a.take ?? 0) - (b.take ?? 0))
    .flatMap(({ id, state }) => {
      failures = state === "FAIL" ? failures + 1 : 0;
      if (failures < Number(columns["suspend"])) return [];
      failures = 0;
      return [`suspended after ${columns["suspend"]} failures in a row, the last that of task ${id}`];
    });
  const reasons = pauses.map(({ reason }) => reason);
  const early = ran.filter(({ take }) =>
    pauses.some(({ since, until }) => take !== null && take > since && take < (until ?? Infinity)),
  );
  return [
    ...(JSON.stringify(reasons) === JSON.stringify(due) ? [] : [`pauses ${reasons.join()} instead of ${due.join()}`]),
    ...early.map((row) => `claimed while its group was paused: ${show(row)}`),
  ];
}

const iso = (time: number): string => new Date(time / 1000).toISOString();

const show = (...rows: readonly ScheduledRow[]): string =>
  rows
    .map((row) => {
      const { time, plan, created, take, start, stop, written } = row;
      const times = Object.entries({ time, plan, created, take, start, stop, written }).map(
        ([name, value]) => `${name} ${value === null ? "null" : iso(value)}`,
      );
      return `${row.id} (parent ${row.parent}, ${row.state}, ${times.join(", ")}, ${row.effects.length} effects, ${row.error})`;
    })
    .join(" and ");
