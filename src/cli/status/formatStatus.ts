import type { Backlog } from "../../tasks/queries/backlog.js";
import type { Count } from "../../tasks/queries/count.js";
import type { OtherLeader, Process } from "../../tasks/queries/clusterProcesses.js";
import type { EndedRates, Rates } from "../../tasks/queries/rates.js";
import type { RowCounts } from "../../tasks/queries/rowCounts.js";
import { printableLine } from "../terminal/escape.js";
import { coloured, type Terminal } from "../terminal/terminal.js";
import { cut } from "../terminal/displayWidth.js";
import { formatDuration, shownNumber, shownTime } from "../terminal/format.js";
import type { Status, TableStatus } from "./readStatus.js";

/** A status as lines, the same for readers and programs; colours and cuts only on a terminal. */
export function statusLines(terminal: Terminal, status: Status): string[] {
  const lines = [
    ...clusterLines(status).map((line) => finish(terminal, line)),
    ...status.tables.flatMap((table) => [
      "",
      coloured(
        terminal,
        "bold",
        finish(terminal, `${table.database}  ${table.schema}.${table.table}`),
      ),
      ...tableLines(table).map((line) => finish(terminal, `  ${line}`)),
    ]),
  ];
  return lines;
}

function finish(terminal: Terminal, line: string): string {
  const text = printableLine(line);
  return terminal.isTerminal ? cut(text, terminal.columns) : text;
}

function clusterLines({ name, cluster, error }: Status): string[] {
  if (cluster === null) return [`cluster    ${name}`, `error      ${error?.message ?? ""}`];
  const { leader, standbys, otherLeaders, connections } = cluster;
  return [
    `cluster    ${name}`,
    `leader     ${leader === null ? "none: start one with pg-task start" : processText(leader)}`,
    ...otherLeaders.map((other) => `other      ${otherText(other)}`),
    `standbys   ${standbys.length === 0 ? "none" : standbys.map(processText).join("; ")}`,
    `server     ${connections.taken} of ${connections.most} connections taken`,
  ];
}

function processText({ pid, address, since }: Process): string {
  const from = address === null ? "" : ` from ${address}`;
  return `server process ${pid}${from}${since === null ? "" : ` since ${shownTime(since)}`}`;
}

/** What sets it apart is what the configuration would have to say to mean it. */
function otherText(other: OtherLeader): string {
  const where = other.sameName ? "" : " under another pg_conf.name";
  return `${processText(other)} leads${where}, its control database is ${other.database}`;
}

const count = ({ value, exact }: Count): string => `${exact ? "" : "about "}${shownNumber(value)}`;

export function tableLines(status: TableStatus): string[] {
  const { error, manager, sessions, backlog, rates, counts, pauses } = status;
  if (error !== null) return [`error      ${error.message}`];
  return [
    `manager    ${manager === null ? "none" : processText(manager)}`,
    `sessions   ${sessions?.sessions ?? 0}, ${sessions?.running ?? 0} running`,
    ...(backlog === null ? [] : backlogLines(backlog)),
    ...(rates === null ? [] : [ratesLine(rates)]),
    ...(counts === null ? [] : [statesLine(counts)]),
    ...pauses.map(({ group, since, reason }) => {
      const what = group === null ? "the whole table" : `group ${JSON.stringify(group)}`;
      return `paused     ${what} since ${shownTime(since)}${reason === null ? "" : `: ${reason}`}`;
    }),
  ];
}

function backlogLines({ due, planned, oldestDue, oldestDueMs, nextPlan }: Backlog): string[] {
  const since = oldestDueMs === null ? `since ${oldestDue}` : `for ${formatDuration(oldestDueMs)}`;
  // Of others that were not looked at, one may be older.
  const oldest = oldestDue === null ? "" : `, the oldest ${since}${due.exact ? "" : " or longer"}`;
  const next = nextPlan === null ? "" : `, the next ${shownTime(nextPlan)}`;
  return [`due        ${count(due)}${oldest}`, `planned    ${count(planned)}${next}`];
}

const rate = ({ ended, failed }: EndedRates): string =>
  `${shownNumber(ended)}${failed === 0 ? "" : ` (${shownNumber(failed)} failed)`}`;

function ratesLine({ lastMinute, lastHour }: Rates): string {
  return `ended      ${rate(lastMinute)} in the last minute, ${rate(lastHour)} in the last hour`;
}

function statesLine({ rows, states }: RowCounts): string {
  const some = Object.entries(states).filter(([, { value, exact }]) => value > (exact ? 0 : 1));
  const list = some
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([state, { value }]) => `${state} ${shownNumber(value)}`);
  return `states     ${rows.exact ? "" : "about "}${list.join("  ") || "no rows"}`;
}
