import type { TaskFilter } from "../../tasks/types.js";
import { exitCodes } from "../../shared/errorCodes.js";
import { PgTaskError } from "../../shared/errors.js";
import { finalStates, type TaskState } from "../../shared/taskState.js";
import { changeInBatches, type ChangeResult } from "../../tasks/commands/changeTasks.js";
import {
  readIdsWithKey,
  readTaskWithKey,
  type KeyedChange,
  type KeyedTask,
  type KeyFilter,
} from "../../tasks/queries/tasksWithKey.js";
import { countMatching, readMatchingIds } from "../../tasks/taskFilter.js";
import { describeChange } from "../../tasks/commands/describeChange.js";
import { confirmChange, colourText, type Terminal } from "../terminal/terminal.js";
import { commandExitCodes } from "../support/exitCodes.js";
import { withTable, type OpenTable } from "../support/openTable.js";
import { withTableOptions, shellWord } from "../support/pastedCommands.js";
import {
  filterFromOptions,
  keyFromOptions,
  type CommandOptions,
  type FilterOptions,
  type TableOptions,
} from "../support/options.js";
import { countPrunable, pruneBatch, readPruneCutoff } from "../../tasks/commands/pruneTasks.js";
import { copyField, formatCount, formatNumber } from "../terminal/format.js";
import { jsonText, printableLine, quotedLine } from "../../shared/printable.js";

const batchSize = 500;

interface KeyOptions extends CommandOptions {
  readonly key?: string;
  readonly role?: string;
  readonly yes?: true;
  readonly running?: true;
}

type ChangeCommand = (terminal: Terminal, ids: readonly string[], options: KeyOptions) => Promise<number>;

export const stop: ChangeCommand = (...given) => changeIdsOrKey("stop", ...given);

export const runNow: ChangeCommand = (...given) => changeIdsOrKey("run-now", ...given);

export const deleteTasks: ChangeCommand = (...given) =>
  changeIdsOrKey(given[2].running === true ? "delete even running" : "delete", ...given);

async function changeIdsOrKey(
  change: KeyedChange,
  terminal: Terminal,
  given: readonly string[],
  options: KeyOptions,
): Promise<number> {
  const filter = keyFromOptions(options);
  if (given.length > 0 && filter !== null) throw new PgTaskError("USAGE", "expected ids or --key, got both");
  if (filter !== null) return await changeWithKey(terminal, change, filter, options);
  if (given.length === 0) throw new PgTaskError("USAGE", "expected ids or --key");
  return await changeIds(terminal, change, given, options);
}

/**
 * A key that one task has names it as an id does. Only `delete` is also meant for tasks that have ended, which can be
 * many, and then asks.
 */
export async function changeWithKey(
  terminal: Terminal,
  change: KeyedChange,
  filter: KeyFilter,
  options: KeyOptions,
): Promise<number> {
  return await withTable(terminal, options, change, async (opened) => {
    const { client, table } = opened;
    const ids = await readIdsWithKey(client, table, change, filter);
    const key = quotedLine(filter.key);
    if (ids.length === 0) {
      const other = await readTaskWithKey(client, table, filter);
      const text = other === null ? "no task" : describeNone(change, filter);
      terminal.writeError(`pg-task: ${text} with the key ${key}${other === null ? "" : `: ${describeOther(other)}`}\n`);
      if (options.json === true) printResults(terminal, change, nothing, options);
      return commandExitCodes.notAll;
    }
    const question = `Delete ${formatCount(ids.length, "task")} with the key ${key} of ${describeTable(opened)}?`;
    const asks = ids.length > 1 && (change === "delete" || change === "delete even running");
    if (asks && !(await confirmChange(terminal, options.yes === true, question))) return commandExitCodes.notAll;
    return printResults(terminal, change, await applyChange(terminal, opened, change, ids, filter.states), options);
  });
}

function describeNone(change: KeyedChange, { states = [] }: KeyFilter): string {
  if (change === "retry") return `no such task in ${states.join(" or ")}`;
  return change === "delete" || change === "delete even running" ? "no task" : "no task waits or runs";
}

const describeOther = ({ id, state }: KeyedTask): string =>
  finalStates.some((each) => each === state)
    ? `the newest task with this key, ${id}, is ${state}`
    : `task ${id} with this key is ${state}`;

const describeTable = ({ table, entry }: OpenTable): string =>
  printableLine(`${table.qualified} in ${entry.target.database}`);

interface RetryOptions extends KeyOptions, FilterOptions {}

export async function retry(terminal: Terminal, given: readonly string[], options: RetryOptions): Promise<number> {
  const filter = filterFromOptions(options);
  const { states, ...others } = filter;
  const { key } = others;
  if (given.length > 0) {
    if (Object.keys(others).length > 0) {
      throw new PgTaskError("USAGE", "expected ids or a filter, got both: only --state can be combined with ids");
    }
    return await changeIds(terminal, "retry", given, options, states);
  }
  if (key !== undefined) {
    return await changeWithKey(terminal, "retry", { ...filter, key, states: states ?? ["FAIL"] }, options);
  }
  if (states === undefined) {
    throw new PgTaskError("USAGE", "expected ids, --state (such as --state FAIL) or --key");
  }
  return await withTable(terminal, options, "retry", (opened) => retryFiltered(terminal, opened, filter, options));
}

async function retryFiltered(
  terminal: Terminal,
  opened: OpenTable,
  filter: TaskFilter,
  options: RetryOptions,
): Promise<number> {
  const { client, table } = opened;
  const total = await countMatching(client, table, filter);
  const question = `Retry ${formatCount(total, "task")} of ${describeTable(opened)}?`;
  if (total > 0 && !(await confirmChange(terminal, options.yes === true, question))) return commandExitCodes.notAll;
  const newest = await readAllIds(opened, filter);
  const changes = await applyChange(terminal, opened, "retry", newest, filter.states);
  // The runs of a schedule with a key are all refused for the same reason, which nobody wants to read for each of them.
  const refused = changes.results.filter(isKeyTaken);
  return printResults(terminal, "retry", changes, options, refused.length > 1 ? refused : []);
}

/** All before the first retry: a retried task can fail again, and would be retried a second time. */
async function readAllIds({ client, table }: OpenTable, filter: TaskFilter): Promise<string[]> {
  const found: string[] = [];
  for (let after: string | null = null; ;) {
    const next: string[] = await readMatchingIds(client, table, {
      filter,
      limit: batchSize,
      after,
    });
    found.push(...next);
    after = next.at(-1) ?? null;
    if (next.length < batchSize) return found;
  }
}

export async function changeIds(
  terminal: Terminal,
  kind: KeyedChange,
  given: readonly string[],
  options: CommandOptions,
  states?: readonly TaskState[],
): Promise<number> {
  const changes = await withTable(terminal, options, kind, (opened) =>
    applyChange(terminal, opened, kind, [...new Set(given)], states),
  );
  return printResults(terminal, kind, changes, options);
}

interface Changes {
  readonly results: readonly ChangeResult[];
  readonly notes: ReadonlyMap<string, string>;
}

const nothing: Changes = { results: [], notes: new Map() };

/** @param states the states to which a retry is limited, because somebody else can retry the same tasks at this moment */
async function applyChange(
  terminal: Terminal,
  opened: OpenTable,
  kind: KeyedChange,
  all: readonly string[],
  states: readonly TaskState[] | null = null,
): Promise<Changes> {
  const { client, table } = opened;
  const showDone = (done: number): void => terminal.showProgress(`${kind}: ${done} of ${all.length}`);
  const results = await changeInBatches(client, table, kind, all, showDone, { states });
  terminal.showProgress(null);
  return { results, notes: await readPauseNotes(opened, kind, results) };
}

/** @param summarised results that get one line together, unless the output is JSON: tasks whose keys are taken */
function printResults(
  terminal: Terminal,
  change: KeyedChange,
  { results, notes }: Changes,
  options: CommandOptions,
  summarised: readonly ChangeResult[] = [],
): number {
  const textOf = (result: ChangeResult): string => describeResult(change, result, notes.get(result.id) ?? "", options);
  const done = results.filter(({ outcome }) => outcome === "changed").length;
  if (options.json === true) {
    const shown = results.map((result) => ({ ...result, text: textOf(result) }));
    terminal.write(`${jsonText({ changed: done, tasks: shown })}\n`);
  } else {
    const together = new Set(summarised);
    for (const result of results) {
      if (!together.has(result)) terminal.write(`${formatResult(terminal, result, textOf(result))}\n`);
    }
    if (summarised.length > 0) printSummary(terminal, withTableOptions(describeKeysTaken(summarised), options));
    if (terminal.isTerminal && results.length > 1) {
      terminal.write(`${formatCount(done, "task")} of ${results.length} changed\n`);
    }
    if (results.length === 0) terminal.writeError("no matching tasks\n");
  }
  if (done === results.length) return commandExitCodes.done;
  // The server reported an error for every task.
  return results.every(({ outcome }) => outcome === "failed") ? exitCodes.SCHEMA : commandExitCodes.notAll;
}

/** A command that it recommends has the options that select the table; a server's error stays. */
function describeResult(change: KeyedChange, result: ChangeResult, note: string, options: TableOptions): string {
  const text = `${describeChange(change, result)}${note}`;
  return result.outcome === "failed" ? text : withTableOptions(text, options);
}

const isKeyTaken = ({ outcome, keyWaitsIn }: ChangeResult): boolean => outcome === "refused" && keyWaitsIn !== null;

const maxNamed = 5;

function describeKeysTaken(refused: readonly ChangeResult[]): string {
  const waiting = [...new Set(refused.map(({ keyWaitsIn }) => keyWaitsIn))];
  const more = waiting.length > maxNamed ? ` (and ${formatCount(waiting.length - maxNamed, "other")})` : "";
  const what = waiting.length === 1 ? "the waiting task with the same key" : "the waiting tasks with these keys";
  return `${formatCount(refused.length, "task")} refused: another task with the same key waits: pg-task run-now ${waiting.slice(0, maxNamed).join(",")}${more} runs ${what}`;
}

/** Without a terminal, this line is no result, because each of these has one id. */
function printSummary(terminal: Terminal, text: string): void {
  if (terminal.isTerminal) terminal.write(`${colourText(terminal, "yellow", text)}\n`);
  else terminal.writeError(`pg-task: ${text}\n`);
}

function formatResult(terminal: Terminal, result: ChangeResult, text: string): string {
  if (!terminal.isTerminal) return [result.id, result.outcome, text].map(copyField).join("\t");
  const colour = result.outcome === "changed" ? null : "yellow";
  return colourText(terminal, colour, `${result.id}  ${printableLine(text)}`);
}

/** By id, why a task that is due now does not start. Nothing that cannot be read makes the command fail. */
async function readPauseNotes(
  { client, table }: OpenTable,
  change: KeyedChange,
  results: readonly ChangeResult[],
): Promise<ReadonlyMap<string, string>> {
  const changed = results.filter(({ outcome }) => outcome === "changed").map(({ id }) => id);
  if ((change !== "run-now" && change !== "retry") || changed.length === 0) return new Map();
  try {
    const { rows } = await client.query<{ id: string; group: string | null }>(
      `SELECT t.id::text AS id, p."group" FROM ${table.pauses} AS p JOIN ${table.qualified} AS t
         ON p."group" IS NULL OR p."group" = t."group"::text
       WHERE t.id = ANY ($1::bigint[]) ORDER BY p."group" NULLS FIRST`,
      [changed],
    );
    const notes = new Map<string, string>();
    for (const { id, group } of rows) {
      const before = notes.get(id);
      notes.set(id, `${before === undefined ? ", but " : `${before}; `}${describePause(group)}`);
    }
    return notes;
  } catch {
    return new Map();
  }
}

const describePause = (group: string | null): string =>
  group === null
    ? "the whole table is paused: pg-task resume"
    : `its group ${quotedLine(group)} is paused: pg-task resume --group ${shellWord(group)}`;

interface PruneOptions extends CommandOptions, FilterOptions {
  readonly older: string;
  readonly yes?: true;
  readonly dryRun?: true;
}

export async function prune(terminal: Terminal, options: PruneOptions): Promise<number> {
  return await withTable(terminal, options, "prune", async (opened) => {
    const { client, table } = opened;
    const cutoff = await readPruneCutoff(client, options.older);
    if (options.dryRun === true || options.yes !== true) {
      const found = await countPrunable(client, table, cutoff, filterFromOptions(options));
      if (options.dryRun === true) return printPruned(terminal, options, { found });
      const question = `Delete ${formatCount(found, "task")} of ${printableLine(table.qualified)} that ended before ${cutoff}?`;
      if (found > 0 && !(await confirmChange(terminal, options.yes === true, question))) return commandExitCodes.notAll;
    }
    return await deleteInBatches(terminal, opened, options, cutoff);
  });
}

async function deleteInBatches(
  terminal: Terminal,
  { client, table }: OpenTable,
  options: PruneOptions,
  cutoff: string,
): Promise<number> {
  let deleted = 0;
  let locked = 0;
  for (let after: string | null = null; ;) {
    const step = await pruneBatch(client, table, cutoff, filterFromOptions(options), after);
    deleted += step.deleted;
    locked += step.locked;
    after = step.next;
    if (after === null) break;
    terminal.showProgress(`${formatNumber(deleted)} deleted`);
  }
  terminal.showProgress(null);
  return printPruned(terminal, options, { deleted, locked });
}

function printPruned(
  terminal: Terminal,
  { json }: PruneOptions,
  result: { readonly found: number } | { readonly deleted: number; readonly locked: number },
): number {
  const left = "locked" in result ? result.locked : 0;
  if (json === true) terminal.write(`${jsonText(result, 0)}\n`);
  else if ("found" in result) terminal.write(`${formatCount(result.found, "task")} would be deleted\n`);
  else {
    const rest = left === 0 ? "" : `, ${formatCount(left, "locked row")} skipped`;
    terminal.write(`${formatCount(result.deleted, "task")} deleted${rest}\n`);
  }
  return left === 0 ? commandExitCodes.done : commandExitCodes.notAll;
}
