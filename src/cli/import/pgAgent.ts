import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import { quoteValue } from "../../shared/postgres/connectionString/parseKeyValues.js";
import type { JobDefinition } from "../../tasks/jobs/job.js";
import { queryValue } from "../../tasks/queryOne.js";
import { ruleOf, type Lists } from "./dayLists.js";
import { readLastRuns, requireTables, switchRows } from "./schedulerTables.js";
import { kept, mapped, notMapped, type Source, type SourceJob } from "./source.js";
import { stepsInput, type Step } from "./steps.js";

interface AgentJob {
  readonly id: string;
  readonly name: string;
  readonly host: string;
  readonly enabled: boolean;
}

interface AgentStep {
  readonly job: string;
  readonly kind: "s" | "b";
  readonly code: string;
  readonly connection: string;
  readonly database: string;
  readonly onError: "f" | "s" | "i";
}

interface AgentSchedule extends AgentArrays {
  readonly id: string;
  readonly job: string;
  readonly enabled: boolean;
  /** In the zone of the agent, such as `20270104T090000`. */
  readonly start: string;
  readonly starts: boolean;
  /** In UTC, such as `20270104T080000Z`. */
  readonly end: string | null;
  /** Each as date and time, of which one can be null. */
  readonly exceptions: readonly (readonly [date: string | null, time: string | null])[];
}

interface AgentArrays {
  readonly minutes: readonly boolean[];
  readonly hours: readonly boolean[];
  readonly weekdays: readonly boolean[];
  /** The last of 32 is the last day of the month. */
  readonly monthdays: readonly boolean[];
  readonly months: readonly boolean[];
}

const tables = ["job", "jobstep", "schedule", "exception"].map((name) => `pgagent.pga_${name}`);

export async function readPgAgent(client: Client): Promise<Source> {
  await requireTables(client, "pgAgent", tables);
  const zone = await queryValue<string>(client, "SELECT current_setting('TimeZone') AS zone");
  const { rows: jobs } = await client.query<AgentJob>(
    `SELECT jobid::text AS id, jobname AS name, jobhostagent AS host, jobenabled AS enabled FROM pgagent.pga_job ORDER BY jobid`,
  );
  const { rows: steps } = await client.query<AgentStep>(
    `SELECT jstjobid::text AS job, jstkind::text AS kind, jstcode AS code, jstconnstr AS connection, jstdbname::text AS database, jstonerror::text AS "onError"
     FROM pgagent.pga_jobstep WHERE jstenabled ORDER BY jstjobid, jstname, jstid`,
  );
  const { rows: schedules } = await client.query<AgentSchedule>(
    `SELECT s.jscid::text AS id, s.jscjobid::text AS job, s.jscenabled AS enabled, to_char(date_trunc('minute', s.jscstart), 'YYYYMMDD"T"HH24MISS') AS start,
       s.jscstart > now() AS starts, to_char(s.jscend AT TIME ZONE 'UTC', 'YYYYMMDD"T"HH24MISS"Z"') AS "end",
       s.jscminutes AS minutes, s.jschours AS hours, s.jscweekdays AS weekdays, s.jscmonthdays AS monthdays, s.jscmonths AS months,
       coalesce((SELECT json_agg(json_build_array(to_char(e.jexdate, 'YYYYMMDD'), to_char(e.jextime, 'HH24MISS')) ORDER BY e.jexid)
         FROM pgagent.pga_exception AS e WHERE e.jexscid = s.jscid), '[]') AS exceptions
     FROM pgagent.pga_schedule AS s ORDER BY s.jscjobid, s.jscid`,
  );
  const ofJob = <T extends { readonly job: string }>(all: readonly T[], { id }: AgentJob): T[] =>
    all.filter(({ job }) => job === id);
  return {
    jobs: jobs.flatMap((job) => toJobs(job, ofJob(steps, job), ofJob(schedules, job), zone)),
    readRuns: (ids, count) => readLastRuns(client, runs, ids, count),
    // It says itself when a job would run next, so a job can be switched at any time.
    awaitMoment: () => Promise.resolve(),
    switchJobs: async (change, settle) => await switchRows(client, change, agentSwitch, settle),
  };
}

const runs = `
  SELECT l.jlgjobid::text AS id, NULL::integer AS pid, coalesce((SELECT string_agg(t.jstcode, E';\n' ORDER BY p.jslid) FROM pgagent.pga_jobsteplog AS p
      JOIN pgagent.pga_jobstep AS t ON t.jstid = p.jsljstid WHERE p.jsljlgid = l.jlgid), '--') AS input, l.jlgstatus = 's' AS ok,
    (SELECT string_agg(p.jsloutput, E'\n' ORDER BY p.jslid) FROM pgagent.pga_jobsteplog AS p WHERE p.jsljlgid = l.jlgid AND p.jsloutput <> '') AS message,
    l.jlgstart::text AS start, (l.jlgstart + l.jlgduration)::text AS stop
  FROM pgagent.pga_joblog AS l WHERE l.jlgjobid::text = id AND l.jlgduration IS NOT NULL AND l.jlgstatus <> 'r'
  ORDER BY l.jlgstart`;

/** A run that the agent owes, or is about to begin, is ours. One that it has begun is not. */
const agentSwitch = {
  update: "UPDATE pgagent.pga_job SET jobenabled = $2::boolean WHERE jobid::text = ANY ($1::text[])",
  since: `SELECT jobid::text AS id, (CASE WHEN jobagentid IS NULL AND jobnextrun <= clock_timestamp()
      THEN jobnextrun - interval '1 microsecond' ELSE clock_timestamp() END)::text AS since
    FROM pgagent.pga_job WHERE jobid::text = ANY ($1::text[]) FOR UPDATE`,
};

function toJobs(
  job: AgentJob,
  steps: readonly AgentStep[],
  schedules: readonly AgentSchedule[],
  zone: string,
): SourceJob[] {
  const { id, name, host, enabled } = job;
  const database = steps.find((step) => step.database !== "")?.database ?? null;
  const found = { id, name, database, owner: null };
  const key = `pgagent ${id}`;
  const problem =
    schedules.length === 0
      ? "it has no schedule"
      : steps.length === 0
        ? "it has no enabled step"
        : steps.some(({ kind }) => kind === "b")
          ? "it has a batch step"
          : null;
  if (problem !== null) return [notMapped({ ...found, key, active: enabled }, problem)];
  const common = [
    ...(host === "" ? [] : [`it was bound to the agent on ${host}`]),
    ...(schedules.length > 1 ? ["a time of two of its schedules runs twice"] : []),
    ...noteErrors(steps),
  ];
  return schedules.map((schedule) => {
    const { rule, notes } = toRule(schedule);
    const own = { ...found, key: `${key}.${schedule.id}`, active: enabled && schedule.enabled };
    // However late pgAgent is, it runs what it owes.
    const values = { ...kept, rule, zone, active: "100 years", group: `${key} ${name}` };
    const chained = steps.map((each) => toStep(each, database));
    const chain = { key: `${own.key} step`, group: `${values.group} steps` };
    const define = (table: TaskTable): JobDefinition => ({ ...values, ...stepsInput(table, chained, chain) });
    return mapped(own, define, [...common, ...notes]);
  });
}

const noteErrors = (steps: readonly AgentStep[]): string[] =>
  steps.some(({ onError }) => onError === "s") ? ["a failure that counts as a success there is a FAIL here"] : [];

const toStep = ({ code, connection, database, onError }: AgentStep, own: string | null): Step => ({
  input: code,
  ignoresErrors: onError !== "f",
  remote: connection === "" ? (database === own ? undefined : `dbname=${quoteValue(database)}`) : connection,
});

const indexes = (flags: readonly boolean[], first: number): number[] =>
  flags.flatMap((flag, index) => (flag ? [index + first] : []));

function toRule(schedule: AgentSchedule): { readonly rule: string; readonly notes: readonly string[] } {
  const { monthdays, start, starts, end, exceptions } = schedule;
  const days = indexes(monthdays.slice(0, 31), 1);
  const isLastDay = monthdays[31] === true;
  const daily = exceptions.flatMap(([date, time]) => (date === null && time !== null ? [time] : []));
  const dated = exceptions.flatMap(([date, time]) => (date === null ? [] : [{ date, time }]));
  const lists: Lists = {
    minutes: indexes(schedule.minutes, 0),
    hours: indexes(schedule.hours, 0),
    days: days.length === 0 && isLastDay ? [-1] : days,
    months: indexes(schedule.months, 1),
    weekdays: indexes(schedule.weekdays, 0),
  };
  const { rule, notes } = ruleOf(lists, { start, starts, end, daily, dated });
  return {
    rule,
    notes: [...(days.length > 0 && isLastDay ? ["pgAgent ignores the last day beside other days"] : []), ...notes],
  };
}
