import type { TaskTable } from "../../manager/schema/taskTable.js";
import { hasSchedule } from "../../manager/schema/schedulesView.sql.js";
import { formatDuration } from "../../shared/formatDuration.js";
import type { Client } from "../../shared/postgres/client.js";
import { identifier } from "../../shared/postgres/quoting.js";
import { shortRule } from "../../shared/describeSchedule.js";
import { nameSchedule, readSchedules, type Schedule } from "../queries/schedules.js";
import { owedRemedy } from "./endedTask.js";

export interface ScheduleWarning {
  readonly text: string;
  readonly remedy: string;
}

const maxSchedules = 1_000;
const maxRuns = 10;
const periodTimes = 100;
/** How many times in a year the clocks of a zone are set forward at most. */
const maxGaps = 4;
/** How many of the most recently claimed rows with a schedule are searched for those that have ended. */
const maxEnded = 10_000;
const maxListed = 5;

/**
 * Looks for schedules whose next run is owed, whose query failed, that give no times, that lose a time at which the
 * clocks are set forward, or that need more time than their group has.
 */
export async function readScheduleWarnings(client: Client, table: TaskTable) {
  const { schedules, more } = await readSchedules(client, table, {
    filter: {},
    limit: maxSchedules,
    characters: 1,
    runs: maxRuns,
  });
  return {
    examined: schedules.length,
    more,
    /** The schedules whose last run failed, or whose waiting run has been tried and failed. */
    failed: schedules
      .filter(({ failedTries, last: [newest] }) => failedTries > 0 || newest?.state === "FAIL")
      .map(nameSchedule),
    warnings: [
      ...owedRuns(schedules),
      ...(await failedRules(client, table)),
      ...brokenRules(table, schedules),
      ...(await lostTimes(client, table, schedules)),
      ...(await overloadedGroups(client, table, schedules)),
    ],
  };
}

const owedRuns = (schedules: readonly Schedule[]): ScheduleWarning[] =>
  schedules
    .filter(({ owed }) => owed !== null)
    .map(({ id, owed }) => ({
      text: `the next run of schedule ${id} could not be planned: ${owed}`,
      remedy: owedRemedy(id),
    }));

async function failedRules(client: Client, table: TaskTable): Promise<ScheduleWarning[]> {
  const { rows } = await client.query<{ id: string; error: string | null }>(
    `SELECT t.id::text AS id, split_part(t.error::text, E'\\n', 1) AS error FROM (
       SELECT c.id, c.state, c.owner, c.wait, c.error FROM ${table.qualified} AS c
       WHERE ${hasSchedule("c")} AND c.ready IS NULL AND c.take IS NOT NULL ORDER BY c.ready DESC, c.take DESC LIMIT ${maxEnded}
     ) AS t WHERE t.state::text = 'FAIL' AND t.owner IS NULL AND t.wait < 0 LIMIT ${maxListed}`,
  );
  return rows.map(({ id, error }) => ({
    text: `schedule ${id} has ended because of its rule, which is a query: ${error}`,
    remedy: `pg-task retry ${id} runs the query again, also after an UPDATE of its rule; pg-task delete ${id} if the schedule is not needed any longer`,
  }));
}

const brokenRules = ({ qualified }: TaskTable, schedules: readonly Schedule[]): ScheduleWarning[] =>
  schedules
    .filter(({ problem, owed }) => problem !== null && owed === null)
    .map(({ id, problem }) => ({
      text: `schedule ${id} gives no times, and ends with its next run: ${problem}`,
      remedy: `UPDATE ${qualified} SET rule = …, zone = … WHERE id = ${id}`,
    }));

/** Whether the schedule has a recurrence rule that is DAILY or slower. Faster rules lose no time in a gap. */
const isDailyOrSlower = ({ rule, problem }: Schedule): boolean =>
  problem === null && /\bFREQ=(?:DAILY|WEEKLY|MONTHLY|YEARLY)\b/i.test(rule ?? "");

async function lostTimes(client: Client, table: TaskTable, schedules: readonly Schedule[]): Promise<ScheduleWarning[]> {
  const candidates = schedules.filter(isDailyOrSlower);
  if (candidates.length === 0) return [];
  const lost = await readLostTimes(client, table, candidates);
  return candidates.flatMap((schedule) => {
    const walls = lost.get(schedule.id) ?? [];
    const [wall] = walls;
    if (wall === undefined) return [];
    const { id, rule, zone } = schedule;
    const shown = walls.map((each) => each.replace(/:00$/, "")).join(", ");
    const cron = cronInstead(rule ?? "", wall);
    return [
      {
        text: `schedule ${id} (${shortRule(rule ?? "")}) leaves out ${shown}, which ${walls.length === 1 ? "does" : "do"} not exist in ${zone ?? "its zone"}: the clocks are set forward`,
        remedy:
          cron === null
            ? "choose a time of day that exists on every day; a cron rule at a fixed time runs at the end of the gap"
            : `UPDATE ${table.qualified} SET rule = '${cron}' WHERE id = ${id}: a cron rule runs at the end of the gap`,
      },
    ];
  });
}

/**
 * By schedule id, the times of recurrence rules within a year that do not exist. In UTC, the rule has all its times:
 * those between the two readings of the zone's clock at a change are lost. RDATE is left out, because none of its times
 * is lost, and so is what EXDATE names in UTC or in another zone, because such an instant exists.
 */
async function readLostTimes(
  client: Client,
  { schema }: TaskTable,
  schedules: readonly Schedule[],
): Promise<Map<string, string[]>> {
  const calendar = identifier(schema);
  const { rows } = await client.query<{ id: string; wall: string }>(
    `WITH RECURSIVE schedule AS (
       SELECT s.id, s.zone, concat('DTSTART:' || to_char((${calendar}.task_rrule_stamp(s.rule, 'DTSTART', l.start, s.zone)).wall, 'YYYYMMDD"T"HH24MISS') || E'\n',
         'RRULE:' || l.recurrence,
         E'\nEXDATE:' || (SELECT string_agg(e.each, ',') FROM unnest(l.removed) AS e(each) WHERE e.each !~ 'Z$')) AS rule
       FROM unnest($1::text[], $2::text[], $3::text[]) AS s(id, rule, zone), ${calendar}.task_rrule_lines(s.rule, s.zone) AS l
       WHERE s.zone IS NOT NULL
     ), gap AS (
       SELECT z.zone, 1 AS nth, g.low, g.high
       FROM (SELECT DISTINCT zone FROM schedule WHERE zone IS NOT NULL) AS z, ${calendar}.task_zone_gap(z.zone, now(), now() + interval '1 year') AS g
       UNION ALL
       SELECT p.zone, p.nth + 1, g.low, g.high
       FROM gap AS p, ${calendar}.task_zone_gap(p.zone, (p.high AT TIME ZONE p.zone) + interval '1 day', now() + interval '1 year') AS g
       WHERE p.high IS NOT NULL AND p.nth < ${maxGaps}
     )
     SELECT s.id, to_char(w.wall, 'YYYY-MM-DD HH24:MI:SS') AS wall
     FROM schedule AS s JOIN gap AS g ON g.zone = s.zone AND g.high IS NOT NULL,
       LATERAL (SELECT (${calendar}.task_upcoming(s.rule, 'UTC', (g.low AT TIME ZONE 'UTC') - interval '1 microsecond', 1))[1] AT TIME ZONE 'UTC' AS wall) AS w
     WHERE w.wall < g.high ORDER BY s.id, w.wall`,
    [schedules.map(({ id }) => id), schedules.map(({ rule }) => rule), schedules.map(({ zone }) => zone)],
  );
  const lost = new Map<string, string[]>();
  for (const { id, wall } of rows) lost.set(id, [...(lost.get(id) ?? []), wall]);
  return lost;
}

interface Demand {
  readonly schedule: Schedule;
  /** Mean duration of a run, including the pause that follows it. */
  readonly takesMs: number;
  /** Time between two runs. */
  readonly periodMs: number;
}

const share = ({ takesMs, periodMs }: Demand): number => takesMs / periodMs;

async function overloadedGroups(
  client: Client,
  table: TaskTable,
  schedules: readonly Schedule[],
): Promise<ScheduleWarning[]> {
  const groups = new Map<string, Demand[]>();
  for (const schedule of schedules.filter(({ pausedItself }) => !pausedItself)) {
    const demand = shortestDemand(schedule);
    const group = schedule.group ?? "";
    if (demand !== null) groups.set(group, [...(groups.get(group) ?? []), demand]);
  }
  const warnings: ScheduleWarning[] = [];
  for (const [group, demands] of groups) {
    const most = 1 + Math.max(...demands.map(({ schedule }) => Math.max(0, schedule.max)));
    // The next three times may be closer together than later ones, so the mean period is computed only if it matters.
    if (total(demands) <= most) continue;
    const exact = await withMeanPeriods(client, table, demands);
    if (total(exact) > most) warnings.push(overload(group, most, exact));
  }
  return warnings;
}

const total = (demands: readonly Demand[]): number => demands.reduce((sum, demand) => sum + share(demand), 0);

/** As if all times were as close as the closest next ones. Null if no duration or no such distance is known. */
function shortestDemand(schedule: Schedule): Demand | null {
  const took = schedule.last.flatMap(({ state, tookMs }) =>
    tookMs !== null && (state === "DONE" || state === "FAIL") ? [tookMs] : [],
  );
  if (took.length === 0) return null;
  const pauseMs = Math.max(0, -schedule.max);
  const takesMs = took.reduce((sum, each) => sum + each, 0) / took.length + pauseMs;
  if (schedule.drift && schedule.repeatMs !== null) return { schedule, takesMs, periodMs: schedule.repeatMs + takesMs };
  if (schedule.repeatMs !== null) return { schedule, takesMs, periodMs: schedule.repeatMs };
  const times = schedule.next.map(({ at }) => Date.parse(at));
  const periods = times.slice(1).map((time, index) => time - (times[index] ?? time));
  return periods.length === 0 ? null : { schedule, takesMs, periodMs: Math.max(1, Math.min(...periods)) };
}

async function withMeanPeriods(client: Client, { schema }: TaskTable, demands: readonly Demand[]): Promise<Demand[]> {
  const rules = demands.map(({ schedule }) => schedule).filter(({ rule }) => rule !== null);
  if (rules.length === 0) return [...demands];
  const { rows } = await client.query<{ id: string; ms: number }>(
    `SELECT s.id, (date_part('epoch', max(t) - min(t)) * 1000 / (count(*) - 1))::float8 AS ms
     FROM unnest($1::text[], $2::text[], $3::text[]) AS s(id, rule, zone),
       unnest(${identifier(schema)}.task_upcoming(s.rule, s.zone, now(), ${periodTimes})) AS t
     GROUP BY s.id HAVING count(*) > 1`,
    [rules.map(({ id }) => id), rules.map(({ rule }) => rule), rules.map(({ zone }) => zone)],
  );
  const periods = new Map(rows.map(({ id, ms }) => [id, ms]));
  return demands.map((demand) => ({ ...demand, periodMs: periods.get(demand.schedule.id) ?? demand.periodMs }));
}

function overload(group: string, most: number, demands: readonly Demand[]): ScheduleWarning {
  const largest = demands.toSorted((a, b) => share(b) - share(a));
  const shown = ({ schedule: { id }, takesMs, periodMs }: Demand): string =>
    `${id} (${formatDuration(takesMs)} every ${formatDuration(periodMs)})`;
  const list = largest.slice(0, maxListed).map(shown);
  const rest = largest.length > maxListed ? [`${largest.length - maxListed} more`] : [];
  return {
    text: `the schedules of group ${JSON.stringify(group)} need ${total(demands).toFixed(1)} runs at the same time, and max allows ${most}: ${[...list, ...rest].join(", ")}`,
    remedy: "raise max, plan them less often, or make them faster; otherwise times are left out",
  };
}

const dayNames = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const known = new Set(["FREQ", "INTERVAL", "WKST", "BYHOUR", "BYMINUTE", "BYSECOND", "BYDAY", "BYMONTHDAY", "BYMONTH"]);

/**
 * The cron rule with the same times as a recurrence rule, if there is one. It does not lose a time at which the clocks
 * are set forward.
 *
 * @param wall any time of the rule as the clock shows it, for what the rule leaves open
 */
export function cronInstead(rule: string, wall: string): string | null {
  const parts = readParts(rule);
  if (parts === null || [...parts.keys()].some((name) => !known.has(name))) return null;
  if ((parts.get("INTERVAL") ?? "1") !== "1") return null;
  const day = dayFields(parts, wall);
  if (day === null) return null;
  const [hour = "", minute = "", second = ""] = wall
    .slice(11, 19)
    .split(":")
    .map((text) => String(Number(text)));
  const seconds = parts.get("BYSECOND") ?? second;
  const clock = `${parts.get("BYMINUTE") ?? minute} ${parts.get("BYHOUR") ?? hour}`;
  return `${seconds === "0" ? "" : `${seconds} `}${clock} ${day}`;
}

function readParts(rule: string): Map<string, string> | null {
  const lines = rule
    .trim()
    .toUpperCase()
    .split(/\s*\n\s*/)
    .filter((line) => !line.startsWith("DTSTART"));
  if (lines.length !== 1) return null;
  return new Map(
    (lines[0] ?? "")
      .replace(/^RRULE:/, "")
      .split(";")
      .map((part) => part.split("="))
      .map(([name = "", value = ""]) => [name, value]),
  );
}

const dateFields = (dayOfMonth: string, months = "*", weekday = "*"): string => `${dayOfMonth} ${months} ${weekday}`;

const weekdayOf = (wall: string): string | undefined =>
  dayNames[new Date(`${wall.slice(0, 10)}T00:00:00Z`).getUTCDay()];

function dayFields(parts: ReadonlyMap<string, string>, wall: string): string | null {
  const frequency = parts.get("FREQ");
  const days = parts.get("BYDAY");
  const monthDays = parts.get("BYMONTHDAY");
  const months = parts.get("BYMONTH");
  // Cron has no negative days, and runs on days that match either of its two day fields.
  if (monthDays?.includes("-") === true || (days !== undefined && monthDays !== undefined)) return null;
  if (days !== undefined) {
    const names = days.split(",").map((day) => dayNames.find((name) => day.length === 2 && name.startsWith(day)));
    return names.includes(undefined) || frequency === "YEARLY" ? null : dateFields("*", months, names.join(","));
  }
  const [, month = "", day = ""] = wall
    .slice(0, 10)
    .split("-")
    .map((text) => String(Number(text)));
  switch (frequency) {
    case "DAILY":
      return dateFields(monthDays ?? "*", months);
    case "WEEKLY":
      return monthDays === undefined ? dateFields("*", months, weekdayOf(wall)) : null;
    case "MONTHLY":
      return dateFields(monthDays ?? day, months);
    case "YEARLY":
      return monthDays === undefined ? dateFields(day, months ?? month) : dateFields(monthDays, months);
    default:
      return null;
  }
}
