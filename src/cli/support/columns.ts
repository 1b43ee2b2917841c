import type { TaskSummary } from "../../tasks/types.js";
import { firstLine } from "../../shared/firstLine.js";
import type { Count } from "../../shared/count.js";
import { formatDuration } from "../../shared/formatDuration.js";
import { formatEstimate, formatTime, formatZonedTime } from "../terminal/format.js";
import type { TableColumn } from "../terminal/table.js";
import { stateColour } from "../terminal/terminal.js";
import type { Group } from "../../tasks/queries/groups.js";
import { describeSuspension, formatLateness, shortRule } from "../../shared/describeSchedule.js";
import type { Schedule, ZonedTime } from "../../tasks/queries/schedules.js";

export const summaryLength = 1000;

const collapseWhitespace = (text: string): string => text.trim().replace(/\s+/g, " ");

const roleColumn: TableColumn<{ readonly role: string | null }> = { title: "role", value: ({ role }) => role };
const keyColumn: TableColumn<TaskSummary> = { title: "key", value: ({ key }) => key, flexible: true };

const commonColumns: readonly TableColumn<TaskSummary>[] = [
  { title: "id", value: ({ id }) => id, alignRight: true },
  { title: "state", value: ({ state }) => state, colour: ({ state }) => stateColour(state) },
  { title: "group", value: ({ group }) => group, flexible: true },
  {
    title: "plan",
    value: ({ plan }) => plan,
    display: ({ plan, held }) => (held && plan === "infinity" ? "after others" : formatTime(plan)),
  },
  {
    title: "took",
    value: ({ tookMs }) => (tookMs === null ? null : String(tookMs)),
    display: ({ tookMs }) => (tookMs === null ? "" : formatDuration(tookMs)),
    alignRight: true,
  },
  {
    title: "input",
    value: ({ input }) => input,
    display: ({ input }) => collapseWhitespace(input),
    flexible: true,
  },
  {
    title: "result",
    value: ({ error, output }) => error ?? output,
    display: ({ error, output }) => (error === null ? collapseWhitespace(output ?? "") : firstLine(error)),
    colour: ({ error }) => (error === null ? null : "red"),
    flexible: true,
  },
];

/** Keys are shown if at least one of the tasks has one. */
export function taskColumns(tasks: readonly TaskSummary[]): readonly TableColumn<TaskSummary>[] {
  const own = [
    ...(tasks.some(({ role }) => role !== null) ? [roleColumn] : []),
    ...(tasks.some(({ key }) => key !== null) ? [keyColumn] : []),
  ];
  return commonColumns.flatMap((column) => (column.title === "group" ? [column, ...own] : [column]));
}

export const taskFields: readonly TableColumn<TaskSummary>[] = [...commonColumns, keyColumn, roleColumn];

const countColumn = (title: string, count: (group: Group) => Count): TableColumn<Group> => ({
  title,
  value: (group) => toField(count(group)),
  display: (group) => formatEstimate(count(group)),
  alignRight: true,
});

/** As a number, unless it is unknown. */
const toField = ({ value }: Count): string | null => (value === null ? null : String(value));

export const groupColumns: readonly TableColumn<Group>[] = [
  { title: "group", value: ({ group }) => group, flexible: true },
  { title: "running", value: ({ running }) => String(running), alignRight: true },
  countColumn("due", ({ due }) => due),
  countColumn("waiting", ({ waiting }) => waiting),
  {
    title: "oldest due",
    value: ({ oldest }) => oldest,
    display: ({ oldestDueMs }) => (oldestDueMs === null ? "" : formatDuration(oldestDueMs)),
    alignRight: true,
  },
  {
    title: "paused",
    value: ({ paused }) => String(paused),
    display: ({ paused }) => (paused ? "paused" : ""),
    colour: () => "yellow",
  },
  {
    title: "gap",
    value: ({ gapMs }) => String(gapMs),
    display: ({ gapMs }) => (gapMs > 0 ? formatDuration(gapMs) : ""),
    alignRight: true,
  },
];

/** In the rule's zone, which has a column of its own; local without one. Leaves out this year, and seconds of 0. */
const formatZoned = ({ at, wall }: ZonedTime): string =>
  wall === null ? formatTime(at) : withoutThisYear(wall.replace(/(:00)?[+-]\d\d:\d\d$/, ""));

function withoutThisYear(text: string): string {
  const year = `${new Date().getFullYear()}-`;
  return text.startsWith(year) ? text.slice(year.length) : text;
}

function formatNext({ owed, paused, pausedItself, suspendedAfter, problem, next, state, overdueMs }: Schedule): string {
  if (owed !== null) return `not planned yet: ${owed}`;
  if (problem !== null) return `no times: ${problem}`;
  if (suspendedAfter !== null) return describeSuspension(suspendedAfter);
  if (pausedItself) return "paused";
  const running = state === "PLAN" ? [] : ["running"];
  const late = formatLateness(overdueMs);
  const marks = [...(paused ? ["group paused"] : []), ...(late === null ? [] : [late]), ...running];
  const shown = [...marks, ...next.map(formatZoned)];
  return shown.length === 0 ? "not yet known" : shown.join(", ");
}

/** In the zone of the schedule, as the next times, if this program knows it. A time of today has no date. */
function formatPast(iso: string, zone: string | null): string {
  const time = new Date(iso);
  if (zone === null || Number.isNaN(time.getTime())) return withoutThisYear(formatTime(iso));
  try {
    // This locale writes dates as ISO 8601 does.
    const format = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "medium" });
    const [day = "", clock = ""] = format.format(time).split(" ");
    return format.format(new Date()).startsWith(day) ? clock : withoutThisYear(`${day} ${clock}`);
  } catch {
    return withoutThisYear(formatZonedTime(iso));
  }
}

/** Says how the last run ended. If the run that waits has been tried already, says how its last try ended instead. */
function formatOutcome({ failedTries, tryError, zone, last: [run] }: Schedule): string {
  if (failedTries > 0) return `try ${failedTries} failed${formatError(tryError)}`;
  if (run === undefined) return "";
  return `${run.state}${run.stop === null ? "" : ` ${formatPast(run.stop, zone)}`}${formatError(run.error)}`;
}

const formatError = (error: string | null): string => (error === null ? "" : ` ${shortError(error)}`);

const shortError = (error: string): string => firstLine(error).replace(/^ERROR:\s+/, "");

/** With the id of the run or the number of the try. */
function formatWholeError({ failedTries, tryError, last: [run] }: Schedule): string | null {
  if (failedTries > 0) return tryError === null ? null : `try ${failedTries}: ${shortError(tryError)}`;
  return run === undefined || run.error === null ? null : `task ${run.id}: ${shortError(run.error)}`;
}

const scheduleKeyColumn: TableColumn<Schedule> = { title: "key", value: ({ key }) => key, flexible: true, keeps: 12 };
const zoneColumn: TableColumn<Schedule> = {
  title: "zone",
  value: ({ zone }) => zone,
  flexible: true,
  keeps: 12,
};

const commonScheduleColumns: readonly TableColumn<Schedule>[] = [
  { title: "id", value: ({ id }) => id, alignRight: true },
  { title: "group", value: ({ group }) => group, flexible: true, keeps: 8, leftOut: 1 },
  {
    title: "rule",
    value: ({ rule, repeat }) => rule ?? repeat,
    display: ({ rule, repeat }) => (rule === null ? `every ${repeat ?? ""}` : shortRule(rule)),
    flexible: true,
    keeps: 12,
  },
  zoneColumn,
  {
    title: "next",
    value: ({ next }) =>
      next.length === 0 ? null : next.map(({ at, wall }) => wall?.replace(" ", "T") ?? at).join(", "),
    display: formatNext,
    colour: ({ owed, paused, problem, overdueMs }) =>
      (owed ?? problem) !== null ? "red" : paused || formatLateness(overdueMs) !== null ? "yellow" : null,
    flexible: true,
    // A whole time to the minute, and the mark of a cut.
    keeps: 17,
    below: ({ owed, problem }) =>
      owed !== null ? `not planned yet: ${owed}` : problem === null ? null : `no times: ${problem}`,
  },
  {
    title: "last",
    value: ({ last: [run] }) => run?.state ?? null,
    display: formatOutcome,
    colour: ({ failedTries, last: [run] }) => (failedTries > 0 ? "yellow" : stateColour(run?.state ?? "")),
    flexible: true,
    // The state with a time of today.
    keeps: 13,
    below: formatWholeError,
  },
  {
    title: "input",
    value: ({ input }) => input,
    display: ({ input }) => collapseWhitespace(input),
    flexible: true,
    keeps: 12,
    leftOut: 3,
  },
];

/** Without zones, times would be misread, unless all schedules have the same one. */
export function scheduleColumns(schedules: readonly Schedule[]): readonly TableColumn<Schedule>[] {
  const keys = schedules.some(({ key }) => key !== null) ? [scheduleKeyColumn] : [];
  const roles = schedules.some(({ role }) => role !== null) ? [roleColumn] : [];
  const zones = new Set(schedules.map(({ zone }) => zone));
  const hasZones = schedules.some(({ zone }) => zone !== null);
  const zone = zones.size > 1 ? zoneColumn : { ...zoneColumn, leftOut: 2 };
  return commonScheduleColumns.flatMap((column) => {
    if (column === zoneColumn) return hasZones ? [zone] : [];
    return column.title === "group" ? [column, ...keys, ...roles] : [column];
  });
}

/** For a line that does not go to a terminal. A terminal shows pauses in the column `next`. */
export const scheduleFields: readonly TableColumn<Schedule>[] = [
  ...commonScheduleColumns,
  { title: "paused", value: ({ paused }) => String(paused) },
  scheduleKeyColumn,
  { title: "failed tries", value: ({ failedTries }) => String(failedTries) },
  { title: "error of the try", value: ({ tryError }) => tryError },
  { title: "owed", value: ({ owed }) => owed },
  roleColumn,
];
