import type { Process } from "../tasks/processes.js";
import { printableLine } from "./screen/printable.js";
import { coloured, type Terminal } from "./screen/terminal.js";
import { cut } from "./screen/width.js";
import { duration, shownNumber, shownTime } from "./screen/words.js";
import { newestRows, type Status, type TableStatus } from "./statusReading.js";

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
      ...tableLines(table, newestRows).map((line) => finish(terminal, `  ${line}`)),
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
  const { leader, standbys, connections } = cluster;
  return [
    `cluster    ${name}`,
    `leader     ${leader === null ? "none: start one with pg-task start" : processText(leader)}`,
    `standbys   ${standbys.length === 0 ? "none" : standbys.map(processText).join("; ")}`,
    `server     ${connections.taken} of ${connections.most} connections taken`,
  ];
}

function processText({ pid, address, since }: Process): string {
  const from = address === null ? "" : ` from ${address}`;
  return `server process ${pid}${from}${since === null ? "" : ` since ${shownTime(since)}`}`;
}

/** @param newest rows that rates and states were counted in, at most */
export function tableLines(
  { error, manager, sessions, backlog, recent, pauses }: TableStatus,
  newest: number,
): string[] {
  if (error !== null) return [`error      ${error.message}`];
  const active =
    sessions === null || sessions.active === null ? "" : `, ${sessions.active} running`;
  const lines = [
    `manager    ${manager === null ? "none" : processText(manager)}`,
    `sessions   ${sessions?.sessions ?? 0}${active}`,
  ];
  if (backlog !== null) {
    const { due, planned, oldestDueMs, oldestDue, nextPlan, rows } = backlog;
    const oldest =
      oldestDue === null
        ? ""
        : `, the oldest ${oldestDueMs === null ? `since ${oldestDue}` : `for ${duration(oldestDueMs)}`}`;
    const next = nextPlan === null ? "" : `, the next ${shownTime(nextPlan)}`;
    lines.push(
      `due        ${shownNumber(due)}${oldest}`,
      `planned    ${shownNumber(planned)}${next}`,
    );
    if (rows !== null) lines.push(`rows       about ${shownNumber(rows)}`);
  }
  if (recent !== null) {
    const { lastMinute, lastHour, states, looked } = recent;
    const rate = ({ ended, failed }: typeof lastMinute): string =>
      `${shownNumber(ended)}${failed === 0 ? "" : ` (${shownNumber(failed)} failed)`}`;
    const counts = Object.entries(states).map(([state, count]) => `${state} ${shownNumber(count)}`);
    lines.push(
      `ended      ${rate(lastMinute)} in the last minute, ${rate(lastHour)} in the last hour`,
      `states     ${counts.join("  ") || "no rows"}${looked < newest ? "" : ` of the newest ${shownNumber(newest)}`}`,
    );
  }
  for (const { group, since, reason } of pauses) {
    const what = group === null ? "the whole table" : `group ${JSON.stringify(group)}`;
    lines.push(
      `paused     ${what} since ${shownTime(since)}${reason === null ? "" : `: ${reason}`}`,
    );
  }
  return lines;
}
