import { setMaxListeners } from "node:events";
import type { TaskTable } from "../manager/schema/taskTable.js";
import { describeValue } from "../shared/describeValue.js";
import { PgTaskError } from "../shared/errors.js";
import { sqlState, type Queryable } from "../shared/postgres/client.js";
import {
  addTasks,
  findRefusedRow,
  needsSeveralStatements,
  refusalState,
  toNamedAddError,
  type NewRow,
} from "../tasks/commands/addTask.js";
import type { Connections } from "./connections.js";
import { nameKeyHolder } from "./nameRefused.js";
import type { AddOptions } from "./options.js";

/**
 * Adds tasks: all of them, or none.
 *
 * @throws the server's error, or a PgTaskError that says which of the tasks was refused and why
 */
export async function addRows(
  connections: Connections,
  table: TaskTable,
  rows: readonly NewRow[],
  { client, ifKeyTaken = "error", signal }: AddOptions,
): Promise<string[]> {
  // One signal can end many calls, each of which adds listeners.
  if (signal !== undefined) setMaxListeners(0, signal);
  const hasKey = rows.some(({ columns }) => (columns.get("key") ?? null) !== null);
  if (ifKeyTaken !== "error" && !hasKey && rows.length > 0) {
    throw new PgTaskError("USAGE", `expected a task with a key, because of ifKeyTaken: ${describeValue(ifKeyTaken)}`);
  }
  const add = async (some: readonly NewRow[], given: Queryable): Promise<string[]> =>
    await addTasks(given, table, some, ifKeyTaken);
  const run = async <T>(work: (given: Queryable) => Promise<T>): Promise<T> =>
    await (client === undefined ? connections.run(work, signal) : connections.runOn(client, work, signal));
  try {
    const work = async (given: Queryable): Promise<string[]> => await add(rows, given);
    return await (client === undefined && needsSeveralStatements(rows)
      ? connections.transaction(work, signal)
      : run(work));
  } catch (error) {
    signal?.throwIfAborted();
    let refused = findRefusedRow(error, rows);
    // The caller's client may be in a transaction, which the error has aborted.
    const isOurs = client === undefined && !connections.areCallers;
    const state = isOurs && rows.length > 1 ? refusalState(error) : null;
    if (state !== null) refused ??= await run((given) => findRefused(given, rows, state, add)).catch(() => null);
    const named = toNamedAddError(error, table, rows, refused);
    if (!(named instanceof PgTaskError) || named.code !== "TASK_KEY_TAKEN") throw named;
    throw await run((given) => nameKeyHolder(given, table, rows, named)).catch(() => named);
  }
}

/**
 * Finds out which task the server refuses if its error does not say so: adds one half of the tasks, then one half of the
 * half with the refused task, and so on, in a transaction that is rolled back.
 *
 * @param client a connection in no transaction
 * @param state SQLSTATE with which the tasks were refused
 * @returns its index; null if none is refused now
 */
async function findRefused(
  client: Queryable,
  rows: readonly NewRow[],
  state: string,
  add: (some: readonly NewRow[], client: Queryable) => Promise<unknown>,
): Promise<number | null> {
  const isRefused = async (from: number, to: number): Promise<boolean> => {
    await client.query("SAVEPOINT half");
    try {
      // Those that are not refused stay, because the refused one may be in conflict with one of them.
      await add(rows.slice(from, to), client);
      return false;
    } catch (error) {
      if (sqlState(error) !== state) throw error;
      await client.query("ROLLBACK TO half");
      return true;
    }
  };
  await client.query("BEGIN");
  try {
    let [first, end] = [0, rows.length];
    while (end - first > 1) {
      const middle = Math.floor((first + end) / 2);
      if (await isRefused(first, middle)) end = middle;
      else first = middle;
    }
    return (await isRefused(first, end)) ? first : null;
  } finally {
    await client.query("ROLLBACK");
  }
}
