import { toReport, type ErrorReport } from "../shared/errors.js";
import type { Configuration, Entry } from "../shared/config/types.js";
import {
  readBacklog,
  readLatencies,
  readRates,
  readRowCounts,
  type Backlog,
  type EndedCounts,
  type Latencies,
  type Rates,
  type RowCounts,
} from "../tasks/queries/counts.js";
import { readPauses, readPausedSchedules, type PausedSchedules } from "../tasks/pauses.js";
import { readCopy } from "../tasks/copies.js";
import {
  readCluster,
  readConnections,
  readTableLock,
  readOtherLeaders,
  type ForeignHolder,
  type OtherLeader,
  type ServerProcess,
  describeForeignHolder,
  remedyOfHolder,
} from "../tasks/queries/clusterProcesses.js";
import { describeTurn } from "../shared/openTurn.js";
import { readHiddenRows, readOpenTurns } from "../tasks/queries/tableFacts.js";
import { readWebhooks } from "../tasks/queries/webhooks.js";
import { describeWebhook } from "./support/describeWebhook.js";
import { readSessions, readSessionRefusal, refusalRemedy } from "../tasks/queries/executorSessions.js";
import { describeReleased, readReleased } from "../supervisor/releasedDatabases.js";
import { releaseOf } from "./support/released.js";
import { describeOtherEntries, readPublishedEntries } from "../supervisor/publishedEntries.js";
import {
  chooseEntry,
  findEntries,
  loadForCommand,
  optionsFor,
  withClient,
  withEntry,
  type OpenTable,
} from "./support/openTable.js";
import { errorDefinitions, exitCodes } from "../shared/errorCodes.js";
import { commandExitCodes } from "./support/exitCodes.js";
import { copyReport } from "../manager/schema/home.js";
import { withTableOptions, howToResume } from "./support/pastedCommands.js";
import { jsonText, printableLine } from "../shared/printable.js";
import { colourText, type Terminal } from "./terminal/terminal.js";
import { truncate, formatCount, formatEstimate, formatNumber, formatTime } from "./terminal/format.js";
import { isSome } from "../shared/count.js";
import { formatDuration } from "../shared/formatDuration.js";
import type { CommandOptions, TableOptions } from "./support/options.js";

const maxRateRows = 100_000;
const concurrentEntries = 5;

export async function showStatus(terminal: Terminal, options: CommandOptions): Promise<number> {
  const configuration = await loadForCommand(terminal, options);
  const entries = findEntries(configuration, options);
  if (entries.length === 0) chooseEntry(terminal, configuration, options);
  const found = await readStatus(configuration, entries);
  const selecting = entries.map((entry) => optionsFor(configuration, entry, options));
  const lines = options.json === true ? [jsonText(found)] : formatStatus(terminal, found, options, selecting);
  terminal.write(`${lines.join("\n")}\n`);
  const errors = [found.error, ...found.tables.map(({ error }) => error)];
  const first = errors.find((error) => error !== null && error.code !== "CONNECTION_RELEASED");
  return first === undefined || first === null ? commandExitCodes.done : exitCodes[errorDefinitions[first.code].family];
}

interface Standby extends ServerProcess {
  /** In which entries it differs from the leader. Null if in none, or if either has not published its entries. */
  readonly otherEntries: string | null;
}

type ClusterStatus = Awaited<ReturnType<typeof readClusterStatus>>;

/** What could not be read is null. */
export type TableStatus = ReturnType<typeof unreadStatus> | Awaited<ReturnType<typeof queryTableStatus>>;

type Status = Awaited<ReturnType<typeof readStatus>>;

/** The error of what cannot be read takes its place. */
async function readStatus(configuration: Configuration, entries: readonly Entry[]) {
  const name = configuration.parameters["pg_conf.name"];
  let cluster: ClusterStatus | null = null;
  let error: ErrorReport | null = null;
  try {
    cluster = await readClusterStatus(configuration, name);
  } catch (failure) {
    error = toReport(failure);
  }
  const tables: TableStatus[] = [];
  for (let from = 0; from < entries.length; from += concurrentEntries) {
    const batch = entries.slice(from, from + concurrentEntries);
    tables.push(
      ...(await Promise.all(
        batch.map(async (entry) => {
          const released = releaseOf(cluster?.released ?? [], entry);
          return released === undefined
            ? await readEntryStatus(configuration, entry)
            : unreadStatus(entry, { code: "CONNECTION_RELEASED", message: describeReleased(released) });
        }),
      )),
    );
  }
  return { name, cluster, error, tables };
}

const readClusterStatus = (configuration: Configuration, name: string) =>
  withClient(
    configuration.control,
    "status",
    async (client) => {
      const cluster = await readCluster(client, name);
      // Leaders of other clusters on the server matter only if this cluster has no leader.
      const otherLeaders = cluster.leader === null ? await readOtherLeaders(client, name) : [];
      const released = await readReleased(client, configuration);
      const { leader, all } = await readPublishedEntries(client, name);
      const otherEntries = (pid: number): string | null =>
        leader && describeOtherEntries(all.get(pid) ?? leader, leader, { entries: configuration.entries, who: "it" });
      const standbys = cluster.standbys.map((standby): Standby => ({
        ...standby,
        otherEntries: otherEntries(standby.pid),
      }));
      return { ...cluster, standbys, otherLeaders, released, connections: await readConnections(client) };
    },
    true,
  );

async function readEntryStatus(configuration: Configuration, entry: Entry): Promise<TableStatus> {
  try {
    return await withEntry(configuration, entry, "status", (opened) => queryTableStatus(opened, maxRateRows));
  } catch (failure) {
    return unreadStatus(entry, toReport(failure));
  }
}

const unreadStatus = (entry: Entry, error: ErrorReport) => ({
  ...namesOf(entry),
  error,
  copy: null,
  manager: null,
  foreignHolder: null,
  sessions: null,
  sessionsRefused: null,
  backlog: null,
  hiddenRows: null,
  rates: null,
  latencies: null,
  counts: null,
  pauses: [],
  pausedSchedules: null,
  turns: [],
  webhooks: [],
});

const namesOf = ({ target, schema, table }: Entry) => ({
  database: target.database,
  schema,
  table,
});

/** @param maxRows the rates are calculated from at most this many of the newest rows */
export async function queryTableStatus({ client, table, entry }: OpenTable, maxRows: number) {
  const { manager, foreignHolder } = await readTableLock(client, table);
  const { sessions, running } = await readSessions(client, table);
  const backlog = await readBacklog(client, table);
  return {
    ...namesOf(entry),
    error: null,
    /** Why the table is a copy, in which nothing starts. Null if it is none. */
    copy: await readCopy(client, table, entry),
    manager,
    foreignHolder,
    sessions: { sessions, running },
    // The manager shows a refusal until a session can be opened, also if the tasks that waited have been deleted.
    sessionsRefused: isSome(backlog.due) === true ? await readSessionRefusal(client, table) : null,
    backlog,
    /** Says that row-level security hides rows, so that no count is complete. */
    hiddenRows: await readHiddenRows(client, table),
    rates: await readRates(client, table, maxRows),
    latencies: await readLatencies(client, table),
    counts: await readRowCounts(client, table, backlog),
    pauses: await readPauses(client, table),
    pausedSchedules: await readPausedSchedules(client, table),
    turns: await readOpenTurns(client, table),
    webhooks: await readWebhooks(client, table),
  };
}

/** @param selecting for each table, the options that select it */
function formatStatus(
  terminal: Terminal,
  status: Status,
  options: TableOptions,
  selecting: readonly TableOptions[],
): string[] {
  return [
    ...formatCluster(status, options).map((line) => fitLine(terminal, line)),
    ...status.tables.flatMap((table, index) => [
      "",
      colourText(terminal, "bold", fitLine(terminal, `${table.database}  ${table.schema}.${table.table}`)),
      ...formatTableStatus(table, selecting[index] ?? null).map((line) => fitLine(terminal, `  ${line}`)),
    ]),
  ];
}

/** An error ends with its remedy, which may have to be pasted, so nothing of it is cut off. */
function fitLine(terminal: Terminal, line: string): string {
  const text = printableLine(line);
  return terminal.isTerminal && !/^ *(?:error|note|refused|released) /.test(text)
    ? truncate(text, terminal.columns)
    : text;
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

function formatForeignHolder(holder: ForeignHolder | null): string[] {
  if (holder === null) return [];
  const title = holder.isPgTask ? "note " : "error";
  return [`${title}      ${describeForeignHolder(holder)}; ${remedyOfHolder(holder)}`];
}

function formatProcess({ pid, address, since }: ServerProcess): string {
  const from = address === null ? "" : ` from ${address}`;
  return `server process ${pid}${from}${since === null ? "" : `, connected since ${formatTime(since)}`}`;
}

function formatOtherLeader(other: OtherLeader): string {
  const where = other.sameName ? "" : " under another pg_conf.name";
  return `${formatProcess(other)} leads${where} in control database ${other.database}`;
}

/** @param selecting the options that select the table, for commands that change it; null to name no such commands */
export function formatTableStatus(status: TableStatus, selecting: TableOptions | null): string[] {
  if (status.error !== null) {
    const { code, message } = status.error;
    return [`${code === "CONNECTION_RELEASED" ? "released  " : "error     "} ${message}`];
  }
  const { copy, manager, foreignHolder, sessions, sessionsRefused: refused } = status;
  return [
    ...(copy === null ? [] : [`error      ${formatCopy(copy, sessions.running, selecting)}`]),
    `manager    ${manager === null ? "none" : formatProcess(manager)}`,
    ...formatForeignHolder(foreignHolder),
    `sessions   ${sessions.sessions}, ${sessions.running} running`,
    ...(refused === null
      ? []
      : [`refused    the server refuses new sessions, tasks wait: ${refused.reason}; ${refusalRemedy(refused)}`]),
    ...(status.hiddenRows === null ? [] : [`note       row-level security ${status.hiddenRows}`]),
    ...formatBacklog(status.backlog),
    formatRates(status.rates),
    ...formatLatencies(status.latencies),
    formatStates(status.counts),
    ...status.pauses.map(({ group, since, reason }) => {
      const what = group === null ? "the whole table" : `group ${JSON.stringify(group)}`;
      return `paused     ${what} since ${formatTime(since)}${reason === null ? "" : `: ${reason}`}`;
    }),
    ...formatPausedSchedules(status.pausedSchedules, selecting),
    ...status.turns.map((turn) => `alone      task ${turn.task} ${describeTurn(turn)}`),
    ...status.webhooks.map((webhook) => `webhook    ${describeWebhook(webhook)}`),
  ];
}

function formatCopy(reason: string, running: number, selecting: TableOptions | null): string {
  const { message } = copyReport(reason, running);
  return selecting === null ? message : withTableOptions(message, selecting);
}

function formatPausedSchedules(paused: PausedSchedules, selecting: TableOptions | null): string[] {
  if (paused.count === 0) return [];
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
  `${more ? "at least " : ""}${formatNumber(ended - failed)}${failed === 0 ? "" : ` and ${formatNumber(failed)} failed`}`;

function formatRates({ lastMinute, lastHour }: Rates): string {
  return `finished   ${formatEnded(lastMinute)} in the last minute, ${formatEnded(lastHour)} in the last hour`;
}

/** Of the runs whose medians the page shows. */
function formatLatencies({ waitMs, runMs, measured }: Latencies): string[] {
  if (waitMs === null || runMs === null || measured === null) return [];
  const { runs, first, last } = measured;
  const of = `${formatCount(runs, "run")} that ended from ${formatTime(first)} to ${formatTime(last)}`;
  return [`median     wait ${formatDuration(waitMs.p50)}, run ${formatDuration(runMs.p50)}, of ${of}`];
}

function formatStates({ rows, states }: RowCounts): string {
  const some = Object.entries(states).filter(([, { value }]) => value !== 0);
  if (some.length === 0) return "states     no rows";
  const list = some
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([state, count]) => `${state} ${formatEstimate(count)}`);
  return `states     ${list.join("  ")}${rows.exact ? "" : `  of ${formatEstimate(rows)} rows`}`;
}
