import { jsonText } from "../../shared/printable.js";
import { omitUndefined } from "../../shared/omitUndefined.js";
import { PgTaskError } from "../../shared/errors.js";
import { listTasks } from "../../tasks/queries/listTasks.js";
import { readSchedules } from "../../tasks/queries/schedules.js";
import { withTable } from "../support/openTable.js";
import { filterFromOptions, type CommandOptions, type FilterOptions } from "../support/options.js";
import {
  scheduleColumns,
  scheduleFields,
  summaryLength,
  taskColumns,
  taskFields,
  groupColumns,
} from "../support/columns.js";
import { fittingColumns, renderTable } from "../terminal/table.js";
import { colourText, type Terminal } from "../terminal/terminal.js";
import { formatCount, formatEstimate, formatNumber } from "../terminal/format.js";
import { readGroups, type Groups } from "../../tasks/queries/groups.js";

interface ListOptions extends CommandOptions, FilterOptions {
  readonly schedules?: true;
  readonly limit: number;
  readonly before?: string;
  readonly waitingFor?: string;
}

export async function list(terminal: Terminal, options: ListOptions): Promise<number> {
  if (options.schedules === true) return await listSchedules(terminal, options);
  const { limit, before, waitingFor } = options;
  const { tasks, next } = await withTable(terminal, options, "list", ({ client, table: names }) =>
    listTasks(
      client,
      names,
      { filter: filterFromOptions(options), limit, before, waitingFor, characters: summaryLength },
      (searched) => {
        terminal.showProgress(`searched ${formatNumber(searched)} rows`);
        return false;
      },
    ),
  );
  terminal.showProgress(null);
  if (options.json === true) {
    terminal.write(`${jsonText({ tasks, before: next })}\n`);
    return 0;
  }
  const lines = renderTable(terminal, terminal.isTerminal ? taskColumns(tasks) : taskFields, tasks);
  if (tasks.length > 0 || !terminal.isTerminal) terminal.write(lines.map((line) => `${line}\n`).join(""));
  if (!terminal.isTerminal) {
    if (tasks.length === 0) noteMissingKey(terminal, options);
    return 0;
  }
  if (tasks.length === 0) terminal.write(before === undefined ? "no tasks\n" : "no more tasks\n");
  else if (next !== null) terminal.write(colourText(terminal, "grey", `more: --before ${next}\n`));
  return 0;
}

/** A key may be misspelt. That other filters match nothing is no reason for a script to write to standard error. */
function noteMissingKey(terminal: Terminal, { key, schedules }: ListOptions): void {
  if (key !== undefined) terminal.writeError(`no matching ${schedules === true ? "schedules" : "tasks"}\n`);
}

async function listSchedules(terminal: Terminal, options: ListOptions): Promise<number> {
  const { state, before, waitingFor, limit, group, key, role, text, since, until, json } = options;
  if (state !== undefined)
    throw new PgTaskError("USAGE", "--state cannot be combined with --schedules: schedules wait or run");
  if (before !== undefined) {
    throw new PgTaskError("USAGE", "--before cannot be combined with --schedules: raise --limit to see more");
  }
  if (waitingFor !== undefined) {
    throw new PgTaskError("USAGE", "--waiting-for cannot be combined with --schedules");
  }
  const found = await withTable(terminal, options, "list", ({ client, table }) =>
    readSchedules(client, table, {
      filter: omitUndefined({ group, key, role, text, since, until }),
      limit,
      characters: summaryLength,
      runs: 1,
    }),
  );
  if (json === true) {
    terminal.write(`${jsonText(found)}\n`);
    return 0;
  }
  const { schedules, more } = found;
  const wanted = terminal.isTerminal ? scheduleColumns(schedules) : scheduleFields;
  const columns = fittingColumns(terminal, wanted, schedules);
  if (schedules.length === 0 && terminal.isTerminal) terminal.write("no schedules\n");
  else for (const line of renderTable(terminal, columns, schedules)) terminal.write(`${line}\n`);
  if (schedules.length === 0 && !terminal.isTerminal) noteMissingKey(terminal, options);
  const leftOut = wanted.flatMap((column) => (columns.includes(column) ? [] : [column.title]));
  if (leftOut.length > 0) {
    const note = `without ${leftOut.join(", ")}, which a wider terminal shows`;
    terminal.write(`${colourText(terminal, "grey", note)}\n`);
  }
  if (more) terminal.writeError(`more than ${formatCount(limit, "schedule")}: raise --limit to see all\n`);
  return 0;
}

interface GroupsOptions extends CommandOptions {
  readonly limit: number;
}

export async function listGroups(terminal: Terminal, options: GroupsOptions): Promise<number> {
  const found = await withTable(terminal, options, "groups", ({ client, table: names }) =>
    readGroups(client, names, { limit: options.limit, ended: false }),
  );
  if (options.json === true) terminal.write(`${jsonText(found)}\n`);
  else if (found.groups.length === 0 && terminal.isTerminal) terminal.write("no running or waiting tasks\n");
  else for (const line of renderTable(terminal, groupColumns, found.groups)) terminal.write(`${line}\n`);
  if (!found.complete && options.json !== true) {
    terminal.writeError(`${describeShown(found)}\n`);
  }
  return 0;
}

function describeShown({ groups, total }: Groups): string {
  if (total.value === groups.length) return "many tasks wait: not all of them were counted";
  return `${formatNumber(groups.length)} of ${formatEstimate(total)} groups: raise --limit to see more`;
}
