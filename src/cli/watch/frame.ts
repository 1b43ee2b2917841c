import { printableLine } from "../../shared/printable.js";
import type { Entry } from "../../shared/config/types.js";
import type { Groups } from "../../tasks/queries/groups.js";
import { formatTableStatus } from "../status/formatStatus.js";
import type { TableStatus } from "../status/readStatus.js";
import { groupColumns } from "../support/groupColumns.js";
import { taskColumns } from "../support/taskColumns.js";
import { truncate } from "../terminal/displayWidth.js";
import { formatNumber, formatTime } from "../terminal/format.js";
import { renderTable } from "../terminal/table.js";
import { colourText, type Terminal } from "../terminal/terminal.js";
import type { Page } from "./readPage.js";

/** Maximum number of groups that are shown. */
export const maxGroups = 8;

/** Everything that an update shows, except the tasks. */
export interface Snapshot {
  readonly status: TableStatus;
  readonly groups: Groups;
}

/** Number of lines that the smallest screen keeps for tasks. */
const minTaskLines = 4;

/** Formats what is above the tasks. On a small screen, groups are left out so that tasks have half of the lines. */
export function formatHeader(terminal: Terminal, entry: Entry, { status, groups }: Snapshot): string[] {
  const lines = formatTableStatus(status, null).map((line) => fitLine(terminal, line));
  const head = [formatTitle(terminal, entry), ...lines, ""];
  const table = renderTable(terminal, groupColumns(groups), groups.groups.slice(0, maxGroups));
  // The table of groups has a line of titles, and an empty line below it.
  const most = Math.floor(terminal.rows / 2) - head.length - 1;
  if (most >= 2 && table.length >= 2) return [...head, ...table.slice(0, most), ""];
  return head.slice(0, Math.max(1, terminal.rows - minTaskLines - 1));
}

export function formatTitle(terminal: Terminal, { target, schema, table }: Entry): string {
  const time = formatTime(new Date().toISOString());
  return colourText(terminal, "bold", fitLine(terminal, `${target.database}  ${schema}.${table}  ${time}`));
}

/** Formats the tasks, and says which part of the table they are unless they are simply the newest ones. */
export function formatTasks(terminal: Terminal, { filter, tasks, top, searched }: Page): string[] {
  const parts = [
    ...(top === null ? [] : [`from task ${top}, Home follows the newest`]),
    ...Object.entries(filter).map(([name, value]) => `${name} ${Array.isArray(value) ? value.join(",") : value}`),
    ...(tasks.length > 0 || searched !== null ? [] : ["no tasks"]),
    ...(searched === null ? [] : [`searched ${formatNumber(searched)} rows`]),
  ];
  const part = parts.length === 0 ? [] : [colourText(terminal, "yellow", fitLine(terminal, parts.join("  ")))];
  return [...part, ...renderTable(terminal, taskColumns(tasks), tasks)];
}

/** Puts a line at the bottom of the screen, below the other lines, which are cut to the rest of the screen. */
export function addBottomLine(terminal: Terminal, lines: readonly string[], bottom: string): string[] {
  const rest = Math.max(0, terminal.rows - 1);
  const empty = Array.from({ length: Math.max(0, rest - lines.length) }, () => "");
  return [...lines.slice(0, rest), ...empty, colourText(terminal, "grey", fitLine(terminal, bottom))];
}

const fitLine = (terminal: Terminal, line: string): string => truncate(printableLine(line), terminal.columns);
