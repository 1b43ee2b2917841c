import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import type { JobDefinition } from "../../tasks/jobs/job.js";
import { queryValue } from "../../tasks/queryOne.js";
import { ruleOf, type Lists } from "./dayLists.js";
import { awaitMiddleOfMinute, readClock, requireTables, switchRows } from "./schedulerTables.js";
import { kept, mapped, notMapped, type Source, type SourceJob } from "./source.js";
import { stepsInput } from "./steps.js";

interface ProJob {
  readonly id: string;
  readonly name: string | null;
  readonly node: string | null;
  readonly rule: ProRule | null;
  readonly nextTime: string | null;
  readonly commands: readonly string[];
  readonly together: boolean;
  readonly onRollback: string | null;
  readonly active: boolean;
  readonly broken: boolean;
  readonly reason: string | null;
  readonly executor: string | null;
  readonly late: string | null;
  readonly retry: number;
  readonly timeout: string | null;
  readonly instances: number;
  /** Local time of the session, such as `20270104T090000`. */
  readonly start: string | null;
  readonly starts: boolean;
  /** In UTC. */
  readonly end: string | null;
}

interface ProRule {
  readonly minutes?: readonly number[];
  readonly hours?: readonly number[];
  readonly days?: readonly number[];
  readonly months?: readonly number[];
  readonly wdays?: readonly number[];
  readonly onstart?: number | boolean;
  readonly dates?: readonly string[];
}

export async function readPgpro(client: Client): Promise<Source> {
  await requireTables(client, "pgpro_scheduler", ["schedule.cron"]);
  const zone = await queryValue<string>(client, "SELECT current_setting('TimeZone') AS zone");
  const { rows } = await client.query<ProJob>(
    `SELECT c.id::text AS id, c.name, c.node, CASE WHEN c.rule ? 'dates' THEN c.rule || jsonb_build_object('dates', (
         SELECT jsonb_agg(to_char(d::timestamptz, 'YYYYMMDD"T"HH24MISS') ORDER BY d::timestamptz) FROM jsonb_array_elements_text(c.rule -> 'dates') AS d)) ELSE c.rule END AS rule,
       nullif(c.next_time_statement, '') AS "nextTime", coalesce(c.do_sql, '{}') AS commands, coalesce(c.same_transaction, false) AS together,
       nullif(c.onrollback_statement, '') AS "onRollback", coalesce(c.active, true) AS active, coalesce(c.broken, false) AS broken, c.reason,
       coalesce(c.executor, c.owner) AS executor, c.postpone::text AS late, coalesce((to_jsonb(c) ->> 'retry')::integer, 0) AS retry,
       c.max_run_time::text AS timeout, coalesce(c.max_instances, 1) AS instances,
       to_char(date_trunc('minute', c.start_date::timestamptz), 'YYYYMMDD"T"HH24MISS') AS start, coalesce(c.start_date::timestamptz > now(), false) AS starts,
       to_char(c.end_date::timestamptz AT TIME ZONE 'UTC', 'YYYYMMDD"T"HH24MISS"Z"') AS "end"
     FROM schedule.cron AS c ORDER BY c.id`,
  );
  return {
    jobs: rows.map((job) => toJob(job, zone)),
    remarks: ["the tables of pgpro_scheduler are known from its documentation only"],
    awaitMoment: () => awaitMiddleOfMinute(() => readClock(client)),
    switchJobs: async (change, settle) => await switchRows(client, change, cronSwitch, settle),
  };
}

const cronSwitch = {
  update: `SELECT CASE WHEN $2::boolean THEN schedule.activate_job(id) ELSE schedule.deactivate_job(id) END
    FROM schedule.cron WHERE id::text = ANY ($1::text[])`,
  since: `SELECT id::text AS id, clock_timestamp()::text AS since FROM schedule.cron WHERE id::text = ANY ($1::text[]) FOR UPDATE`,
};

function toJob(job: ProJob, zone: string): SourceJob {
  const { id, name, executor, active, broken, commands, together, onRollback } = job;
  const key = `pgpro ${id}`;
  const found = { key, id, name, database: null, owner: executor, active: active && !broken };
  const schedule = toSchedule(job, zone);
  const problem = problemOf(job) ?? (schedule === null ? "it has no schedule" : null);
  if (schedule === null || problem !== null) return notMapped(found, problem ?? "");
  const group = name === null ? key : `${key} ${name}`;
  const inputs = together ? [commands.map((command) => command.trim().replace(/;$/, "")).join(";\n")] : commands;
  const chain = { key: `${key} step`, group: `${group} steps`, fail: onRollback ?? undefined };
  const isPlanned = inputs.length > 1 || onRollback !== null;
  const steps = inputs.map((input) => ({ input, ignoresErrors: false, timeout: job.timeout ?? undefined }));
  const define = (table: TaskTable): JobDefinition => ({
    ...kept,
    group,
    ...schedule.columns,
    ...limitsOf(job, isPlanned),
    ...stepsInput(table, steps, chain),
  });
  return mapped(found, define, [...schedule.notes, ...notesOf(job, isPlanned)]);
}

function problemOf({ node, rule, commands }: ProJob): string | null {
  if (node !== null && node !== "" && node !== "master") return `it is bound to the node ${node}`;
  if (Number(rule?.onstart ?? 0) === 1) return "it runs when the server starts";
  return commands.length === 0 ? "it has no commands" : null;
}

const limitsOf = ({ late, retry, instances }: ProJob, isPlanned: boolean): Partial<JobDefinition> => ({
  ...(late === null ? {} : { active: late }),
  ...(retry === 0 || isPlanned ? {} : { retry }),
  ...(instances > 1 ? { overlap: true, max: instances - 1 } : {}),
});

const notesOf = ({ broken, reason, timeout, retry }: ProJob, isPlanned: boolean): string[] => [
  ...(broken ? [`it is broken there (${reason ?? "no reason"}), and is paused here`] : []),
  ...(isPlanned && timeout !== null ? ["its time limit is that of each step here"] : []),
  ...(isPlanned && retry > 0 ? ["it is not tried again here"] : []),
];

interface Schedule {
  readonly columns: Pick<JobDefinition, "rule" | "zone">;
  readonly notes: readonly string[];
}

function toSchedule(job: ProJob, zone: string): Schedule | null {
  const { rule, nextTime, start, starts, end } = job;
  const { minutes = [], hours = [], days = [], months = [], wdays: weekdays = [], dates = [] } = rule ?? {};
  const lists = { minutes, hours, days, months, weekdays };
  const isRecurrent = Object.values(lists).some((list) => list.length > 0);
  if (nextTime !== null) return fromQuery(nextTime, isRecurrent || dates.length > 0);
  const [first] = dates;
  const added = first === undefined ? "" : `\nRDATE:${dates.join(",")}`;
  if (!isRecurrent)
    return first === undefined ? null : { columns: { rule: `DTSTART:${first}${added}`, zone }, notes: [] };
  const bounds = { start: start ?? "20000101T000000", starts: starts || added !== "", end, daily: [], dated: [] };
  const made = ruleOf(lists, bounds);
  return { columns: { rule: `${made.rule}${added}`, zone }, notes: [...noteBoth(lists), ...made.notes] };
}

/** Its documentation does not say what then happens. */
const noteBoth = ({ days, weekdays }: Lists): string[] =>
  days.length > 0 && weekdays.length > 0 ? ["day and weekday both have to fit here"] : [];

const fromQuery = (query: string, hasTimes: boolean): Schedule => ({
  columns: { rule: query },
  notes: [
    ...(hasTimes ? ["the first time comes from its query, too"] : []),
    ...(/transaction/i.test(query) ? ["current_setting('pg_task.state') says how the run ended"] : []),
  ],
});
