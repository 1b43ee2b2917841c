import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Client } from "../../shared/postgres/client.js";
import type { JobDefinition } from "../../tasks/jobs/job.js";
import { ruleOf } from "./dayLists.js";
import { awaitMiddleOfMinute, readClock, readLastRuns, requireTables, switchRows } from "./schedulerTables.js";
import { kept, mapped, notMapped, type Source, type SourceJob } from "./source.js";
import { hasParts, stepsInput, type Step } from "./steps.js";

interface TimetableChain {
  readonly id: string;
  readonly name: string;
  readonly schedule: string | null;
  readonly zone: string;
  readonly instances: number | null;
  readonly timeout: number;
  readonly live: boolean;
  readonly destructs: boolean;
  readonly exclusive: boolean;
  readonly client: string | null;
  readonly onError: string | null;
}

interface TimetableTask {
  readonly chain: string;
  readonly kind: string;
  readonly command: string;
  readonly role: string | null;
  readonly connection: string | null;
  readonly ignoresErrors: boolean;
  readonly autonomous: boolean;
  readonly timeout: number;
  /** The command is executed with each of them. */
  readonly parameters: readonly unknown[];
}

export async function readPgTimetable(client: Client): Promise<Source> {
  await requireTables(client, "pg_timetable", ["timetable.chain", "timetable.task", "timetable.parameter"]);
  // Older versions lack some columns.
  const { rows: chains } = await client.query<TimetableChain>(
    `SELECT chain_id::text AS id, chain_name AS name, run_at::text AS schedule, max_instances AS instances,
       coalesce(to_jsonb(c) ->> 'run_at_time_zone', current_setting('TimeZone')) AS zone,
       coalesce((to_jsonb(c) ->> 'timeout')::integer, 0) AS timeout, coalesce(live, false) AS live,
       coalesce(self_destruct, false) AS destructs, coalesce(exclusive_execution, false) AS exclusive,
       client_name AS client, to_jsonb(c) ->> 'on_error' AS "onError"
     FROM timetable.chain AS c ORDER BY chain_id`,
  );
  const { rows: tasks } = await client.query<TimetableTask>(
    `SELECT t.chain_id::text AS chain, t.kind::text AS kind, t.command, t.run_as AS role, t.database_connection AS connection,
       t.ignore_error AS "ignoresErrors", t.autonomous, coalesce((to_jsonb(t) ->> 'timeout')::integer, 0) AS timeout,
       coalesce((SELECT json_agg(p.value ORDER BY p.order_id) FROM timetable.parameter AS p WHERE p.task_id = t.task_id AND p.value IS NOT NULL), '[]') AS parameters
     FROM timetable.task AS t WHERE t.chain_id IS NOT NULL ORDER BY t.chain_id, t.task_order, t.task_id`,
  );
  const ofChain = ({ id }: TimetableChain): TimetableTask[] => tasks.filter(({ chain }) => chain === id);
  return {
    jobs: chains.map((each) => toJob(each, ofChain(each))),
    readRuns: (ids, count) => readLastRuns(client, runs, ids, count),
    awaitMoment: () => awaitMiddleOfMinute(() => readClock(client)),
    switchJobs: async (change, settle) => await switchRows(client, change, chainSwitch, settle),
  };
}

/** Each task of a chain is a run. */
const runs = `
  SELECT l.chain_id::text AS id, l.pid::integer AS pid, coalesce(l.command, '--') AS input, l.returncode = 0 AS ok, l.output AS message,
    l.last_run::text AS start, l.finished::text AS stop
  FROM timetable.execution_log AS l WHERE l.chain_id::text = id AND l.last_run IS NOT NULL AND l.finished IS NOT NULL
  ORDER BY l.last_run`;

const chainSwitch = {
  update: "UPDATE timetable.chain SET live = $2::boolean WHERE chain_id::text = ANY ($1::text[])",
  since: `SELECT chain_id::text AS id, clock_timestamp()::text AS since FROM timetable.chain
    WHERE chain_id::text = ANY ($1::text[]) FOR UPDATE`,
};

function toJob(chain: TimetableChain, tasks: readonly TimetableTask[]): SourceJob {
  const { id, name, live, exclusive, onError, timeout } = chain;
  const key = `pg_timetable ${id}`;
  const found = { key, id, name, database: null, owner: tasks[0]?.role ?? null, active: live };
  const problem = problemOf(chain, tasks);
  if (problem !== null) return notMapped(found, problem);
  const { columns, notes } = toSchedule(chain);
  const steps = tasks.every(isPlain) && onError === null ? [joined(tasks)] : tasks.flatMap(toSteps);
  const isPlanned = steps.length > 1 || onError !== null;
  const group = `${key} ${name}`;
  const within = timeout > 0 && isPlanned && !hasParts(steps) ? `${timeout} ms` : undefined;
  const alone = exclusive ? ("table" as const) : undefined;
  const options = { key: `${key} step`, group: `${group} steps`, fail: onError ?? undefined, within, alone };
  const define = (table: TaskTable): JobDefinition => ({
    ...kept,
    group,
    ...(timeout > 0 && !isPlanned ? { timeout: `${timeout} ms` } : {}),
    ...(alone === undefined || isPlanned ? {} : { alone }),
    ...instancesOf(chain),
    ...columns,
    ...stepsInput(table, steps, options),
  });
  return mapped(found, define, [...notes, ...notesOf(chain, tasks, { isPlanned, within })]);
}

const instancesOf = ({ instances }: TimetableChain): Pick<JobDefinition, "overlap" | "max"> =>
  instances === null || instances < 2 ? {} : { overlap: true, max: instances - 1 };

function notesOf(
  { instances, timeout, client }: TimetableChain,
  tasks: readonly TimetableTask[],
  { isPlanned, within }: { readonly isPlanned: boolean; readonly within: string | undefined },
): string[] {
  return [
    ...(instances === null ? ["its runs do not overlap here"] : []),
    ...(isPlanned && tasks.some(({ autonomous }) => !autonomous) ? ["each step is a transaction of its own here"] : []),
    ...(isPlanned && timeout > 0 && within === undefined
      ? ["the time limit of the whole chain is not taken over"]
      : []),
    ...(client === null ? [] : [`it was bound to the client ${client}`]),
  ];
}

function problemOf(chain: TimetableChain, tasks: readonly TimetableTask[]): string | null {
  const foreign = tasks.find(({ kind }) => kind !== "SQL");
  if (foreign !== undefined) return `it has a task of the kind ${foreign.kind}`;
  if (tasks.length === 0) return "it has no task";
  if (chain.schedule === "@reboot") return "@reboot";
  if (chain.destructs) return "self_destruct";
  // With users, only the tasks of the table's owner run alone.
  if (chain.exclusive && tasks.some(({ role }) => role !== null)) return "exclusive_execution with run_as";
  if (new Set(tasks.map(({ role }) => role)).size > 1) return "its tasks run as several roles";
  if (tasks.some(({ connection, parameters }) => /\$\{secret:/.test(JSON.stringify([connection, parameters]))))
    return "it uses a secret";
  const wrong = tasks.flatMap(({ parameters }) => parameters).find((value) => !Array.isArray(value));
  return wrong === undefined ? null : "it has parameters that are no array";
}

/** Whether it can share an input with others. */
const isPlain = ({ connection, ignoresErrors, autonomous, timeout, parameters }: TimetableTask): boolean =>
  connection === null && !ignoresErrors && !autonomous && timeout === 0 && parameters.length === 0;

const joined = (tasks: readonly TimetableTask[]): Step => ({
  input: tasks.map(({ command }) => command.trim().replace(/;$/, "")).join(";\n"),
  ignoresErrors: false,
});

function toSteps({ command, connection, ignoresErrors, timeout, parameters }: TimetableTask): Step[] {
  const step = {
    input: command,
    ignoresErrors,
    remote: connection ?? undefined,
    timeout: timeout > 0 ? `${timeout} ms` : undefined,
  };
  return parameters.length === 0 ? [step] : parameters.map((args) => ({ ...step, args }));
}

type ScheduleColumns = Pick<JobDefinition, "rule" | "zone" | "repeat" | "drift">;

function toSchedule({ schedule, zone }: TimetableChain): {
  readonly columns: ScheduleColumns;
  readonly notes: readonly string[];
} {
  const [, kind, interval = ""] = /^@(every|after)\s*(.*)$/.exec(schedule ?? "") ?? [];
  if (kind === "every") return { columns: { repeat: interval }, notes: [] };
  if (kind === "after") return { columns: { repeat: interval, drift: true }, notes: [] };
  // Without a schedule, it runs every minute.
  const fields = (schedule ?? "* * * * *").trim().split(/\s+/);
  const [minutes = "*", hours = "*", days = "*", months = "*", weekdays = "*"] = fields;
  if (days.startsWith("*") || weekdays.startsWith("*")) return { columns: { rule: fields.join(" "), zone }, notes: [] };
  // Both day fields have to fit.
  const lists = {
    minutes: expand(minutes, 0, 59),
    hours: expand(hours, 0, 23),
    days: expand(days, 1, 31),
    months: expand(months, 1, 12),
    weekdays: [...new Set(expand(weekdays, 0, 7).map((day) => day % 7))],
  };
  const always = { start: "20000101T000000", starts: false, end: null, daily: [], dated: [] };
  const { rule, notes } = ruleOf(lists, always);
  return { columns: { rule, zone }, notes };
}

/** Empty for all values. */
function expand(field: string, low: number, high: number): number[] {
  if (field === "*") return [];
  const values = field.split(",").flatMap((item) => {
    const [range = "", step] = item.split("/");
    const [from = "*", to] = range.split("-");
    const first = from === "*" ? low : Number(from);
    const last = to !== undefined ? Number(to) : from === "*" || step !== undefined ? high : first;
    const count = Math.floor((last - first) / Number(step ?? 1)) + 1;
    return Array.from({ length: Math.max(0, count) }, (_, index) => first + index * Number(step ?? 1));
  });
  return [...new Set(values)].toSorted((one, other) => one - other);
}
