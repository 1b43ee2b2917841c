import { copyReport } from "../../manager/schema/home.js";
import { withTableOptions } from "../support/pastedCommands.js";
import { howToResume } from "../support/resumeSchedules.js";
import type { Backlog } from "../../tasks/queries/backlog.js";
import { foreignHolderRemedy } from "../../shared/postgres/frozenHolder.js";
import {
  describeForeignHolder,
  type ForeignHolder,
  type OtherLeader,
  type ServerProcess,
} from "../../tasks/queries/clusterProcesses.js";
import type { EndedCounts, Rates } from "../../tasks/queries/recentRuns.js";
import type { Count, RowCounts } from "../../tasks/queries/rowCounts.js";
import type { PausedSchedules } from "../../tasks/queries/pausedSchedules.js";
import { printableLine } from "../../shared/printable.js";
import { colourText, type Terminal } from "../terminal/terminal.js";
import { truncate } from "../terminal/displayWidth.js";
import { formatCount, formatNumber, formatTime } from "../terminal/format.js";
import type { Status, TableStatus } from "./readStatus.js";
import { refusalRemedy } from "../../tasks/queries/sessionRefusal.js";
import { formatDuration } from "../../shared/formatDuration.js";
import type { TableOptions } from "../support/options.js";

/**
 * Formats a status as lines. For a terminal, adds colours and truncates the lines, except those of errors.
 *
 * @param options the options of the command
 * @param selecting for each table, the options that select it
 */
export function formatStatus(
  terminal: Terminal,
  status: Status,
  options: TableOptions,
  selecting: readonly TableOptions[],
): string[] {
  const lines = [
    ...formatCluster(status, options).map((line) => fitLine(terminal, line)),
    ...status.tables.flatMap((table, index) => [
      "",
      colourText(terminal, "bold", fitLine(terminal, `${table.database}  ${table.schema}.${table.table}`)),
      ...formatTableStatus(table, selecting[index] ?? null).map((line) => fitLine(terminal, `  ${line}`)),
    ]),
  ];
  return lines;
}

/**
 * Fits a line to the terminal. An error ends with its remedy, which may have to be pasted, so the terminal breaks its line
 * and nothing is cut off.
 */
function fitLine(terminal: Terminal, line: string): string {
  const text = printableLine(line);
  return terminal.isTerminal && !/^ *(?:error|note|refused) /.test(text) ? truncate(text, terminal.columns) : text;
}

function formatCluster({ name, cluster, error, tables }: Status, options: TableOptions): string[] {
  if (cluster === null) return [`cluster    ${name}`, `error      ${error?.message ?? ""}`];
  const { leader, foreignHolder, standbys, otherLeaders, connections } = cluster;
  const isServed = tables.some(({ manager }) => manager !== null);
  const none = isServed
    ? "none with this configuration, but a manager serves a table: see the log of the pg-task that runs"
    : withTableOptions("none: run pg-task start", options);
  return [
    `cluster    ${name}`,
    `leader     ${leader === null ? none : formatProcess(leader)}`,
    ...formatForeignHolder(foreignHolder),
    ...otherLeaders.map((other) => `other      ${formatOtherLeader(other)}`),
    `standbys   ${standbys.length === 0 ? "none" : standbys.map(formatProcess).join("; ")}`,
    ...standbys.flatMap(({ pid, otherEntries }) =>
      otherEntries === null
        ? []
        : [`note       the standby of server process ${pid} has other entries than the leader: ${otherEntries}`],
    ),
    `server     ${connections.taken} of ${connections.most} connections in use`,
  ];
}

const formatForeignHolder = (holder: ForeignHolder | null): string[] =>
  holder === null
    ? []
    : [
        `${holder.isPgTask ? "note " : "error"}      ${describeForeignHolder(holder)}; ${foreignHolderRemedy(holder.pid)}`,
      ];

function formatProcess({ pid, address, since }: ServerProcess): string {
  const from = address === null ? "" : ` from ${address}`;
  return `server process ${pid}${from}${since === null ? "" : `, connected since ${formatTime(since)}`}`;
}

/** Describes the leader of another cluster, including the configuration values in which the clusters may differ. */
function formatOtherLeader(other: OtherLeader): string {
  const where = other.sameName ? "" : " under another pg_conf.name";
  return `${formatProcess(other)} leads${where} in control database ${other.database}`;
}

const formatEstimate = ({ value, exact }: Count): string => `${exact ? "" : "about "}${formatNumber(value)}`;

/**
 * Formats the status of a table as lines.
 *
 * @param selecting the options that select the table, for commands that change it; null to name no such commands
 */
export function formatTableStatus(status: TableStatus, selecting: TableOptions | null): string[] {
  const {
    error,
    copy,
    manager,
    foreignHolder,
    sessions,
    sessionsRefused,
    backlog,
    rates,
    counts,
    pauses,
    pausedSchedules,
  } = status;
  if (error !== null) return [`error      ${error.message}`];
  return [
    ...(copy === null ? [] : [`error      ${formatCopy(copy, sessions?.running ?? 0, selecting)}`]),
    `manager    ${manager === null ? "none" : formatProcess(manager)}`,
    ...formatForeignHolder(foreignHolder),
    `sessions   ${sessions?.sessions ?? 0}, ${sessions?.running ?? 0} running`,
    ...(sessionsRefused === null
      ? []
      : [
          `refused    the server refuses new sessions, tasks wait: ${sessionsRefused.reason}; ${refusalRemedy(sessionsRefused)}`,
        ]),
    ...(backlog === null ? [] : formatBacklog(backlog)),
    ...(rates === null ? [] : [formatRates(rates)]),
    ...(counts === null ? [] : [formatStates(counts)]),
    ...pauses.map(({ group, since, reason }) => {
      const what = group === null ? "the whole table" : `group ${JSON.stringify(group)}`;
      return `paused     ${what} since ${formatTime(since)}${reason === null ? "" : `: ${reason}`}`;
    }),
    ...formatPausedSchedules(pausedSchedules, selecting),
  ];
}

function formatCopy(reason: string, running: number, selecting: TableOptions | null): string {
  const { message } = copyReport(reason, running);
  return selecting === null ? message : withTableOptions(message, selecting);
}

function formatPausedSchedules(paused: PausedSchedules | null, selecting: TableOptions | null): string[] {
  if (paused === null || paused.count === 0) return [];
  const how = selecting === null ? "" : `: ${withTableOptions(howToResume(paused), selecting)}`;
  return [`paused     ${formatCount(paused.count, "schedule")}${how}`];
}

function formatBacklog({ due, planned, oldestDue, oldestDueMs, nextPlan }: Backlog): string[] {
  const since = oldestDueMs === null ? `since ${oldestDue}` : `for ${formatDuration(oldestDueMs)}`;
  // If the count is an estimate, not all rows were read. A row that was not read may have been due for longer.
  const oldest = oldestDue === null ? "" : `, the oldest ${since}${due.exact ? "" : " or longer"}`;
  const next = nextPlan === null ? "" : `, the next ${formatTime(nextPlan)}`;
  return [`due        ${formatEstimate(due)}${oldest}`, `planned    ${formatEstimate(planned)}${next}`];
}

const formatEnded = ({ ended, failed, more }: EndedCounts): string =>
  `${more ? "at least " : ""}${formatNumber(ended)}${failed === 0 ? "" : ` (${formatNumber(failed)} failed)`}`;

function formatRates({ lastMinute, lastHour }: Rates): string {
  return `ended      ${formatEnded(lastMinute)} in the last minute, ${formatEnded(lastHour)} in the last hour`;
}

function formatStates({ rows, states }: RowCounts): string {
  const some = Object.entries(states).filter(([, { value, exact }]) => value > (exact ? 0 : 1));
  const list = some
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([state, { value }]) => `${state} ${formatNumber(value)}`);
  return `states     ${rows.exact ? "" : "about "}${list.join("  ") || "no rows"}`;
}
