import { errorMessage, PgTaskError } from "../../shared/errors.js";
import { omitUndefined } from "../../shared/omitUndefined.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import { insufficientPrivilege, queryCanceled, readOnlyTransaction } from "../../shared/postgres/sqlStates.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import {
  addTasks,
  findRefusedColumn,
  readMissingGrants,
  toAddError,
  type NewRow,
} from "../../tasks/commands/addTask.js";
import { findBrokenChecks } from "../../tasks/commands/brokenChecks.js";
import { changeTasks, type Change, type ChangeResult } from "../../tasks/commands/changeTasks.js";
import { describeChange, webRemedies } from "../../tasks/commands/describeChange.js";
import { pauseTasks, readPauses, resumeTasks } from "../../tasks/pauses.js";
import { toRow } from "../../tasks/commands/toRow.js";
import { readChangePrivileges } from "../../tasks/queries/tableFacts.js";
import type { WebTable } from "../data/webTable.js";
import { ApiError } from "../errors.js";
import type {
  ChangedTask,
  AddedTask,
  ChangeResults,
  ChangesBody,
  NewTaskBody,
  PauseBody,
  PauseResult,
} from "./changeSchemas.js";

export type WebChange = Exclude<Change, "delete even running">;

/** @throws ApiError FORBIDDEN if the user of the entry may not change any; READ_ONLY */
export async function changeMany(webTable: WebTable, { change, ids, states }: ChangesBody): Promise<ChangeResults> {
  if (states !== undefined && change !== "retry") {
    throw new ApiError("INVALID", "states: only a retry can be limited to states");
  }
  const results = await makeChange(webTable, change, ids, states);
  return {
    changed: results.filter(({ outcome }) => outcome === "changed").length,
    tasks: results.map((result) => {
      const { id, outcome, state } = result;
      return { id, outcome, state, text: describeChange(change, result, webRemedies) };
    }),
  };
}

/** @throws ApiError NOT_FOUND; CONFLICT with the reason if the state of the task does not allow the change */
export async function changeOne(webTable: WebTable, change: WebChange, id: string): Promise<ChangedTask> {
  const [result] = await makeChange(webTable, change, [id]);
  if (result === undefined || result.outcome === "missing") {
    throw new ApiError("NOT_FOUND", `there is no task ${id} in this table`);
  }
  const text = describeChange(change, result, webRemedies);
  if (result.outcome !== "changed") throw new ApiError("CONFLICT", `task ${id}: ${text}`);
  if (change === "delete") return { id, state: null };
  return { id, state: change === "stop" ? "STOP" : "PLAN" };
}

async function makeChange(
  { pool, table, changes }: WebTable,
  change: WebChange,
  ids: readonly string[],
  states?: ChangesBody["states"],
): Promise<ChangeResult[]> {
  const results = await pool.change(async (client) => {
    const privileges = await readChangePrivileges(client, table);
    if (privileges.readOnly) throw readOnlyError();
    const needed = change === "delete" ? ["UPDATE", "DELETE"] : ["UPDATE"];
    const lacking = needed.filter((each) => !(each === "DELETE" ? privileges.delete : privileges.update));
    if (lacking.length > 0) {
      const grant = `GRANT ${lacking.join(", ")} ON ${table.qualified} TO ${privileges.user}`;
      throw new ApiError(
        "FORBIDDEN",
        `the entry's user may not ${change === "run-now" ? "replan" : change} tasks: ${grant}`,
      );
    }
    return await changeTasks(client, table, change, [...new Set(ids)], { isFatal, states: states ?? null });
  });
  changes.noteChange();
  return results;
}

/** Whether trying each task alone would not help. */
const isFatal = (error: unknown): boolean => [queryCanceled, readOnlyTransaction].includes(sqlState(error) ?? "");

export async function pause(webTable: WebTable, { group = null, reason = null }: PauseBody): Promise<PauseResult> {
  return await changePauses(webTable, async (client, table) => {
    const changed = await pauseTasks(client, table, group, reason);
    return { group, changed, paused: true };
  });
}

export async function resume(webTable: WebTable, { group = null }: PauseBody): Promise<PauseResult> {
  return await changePauses(webTable, async (client, table) => {
    const changed = await resumeTasks(client, table, group);
    const left = await readPauses(client, table);
    return { group, changed, paused: left.some((each) => each.group === null || each.group === group) };
  });
}

async function changePauses(
  webTable: WebTable,
  work: (client: Client, table: TaskTable) => Promise<PauseResult>,
): Promise<PauseResult> {
  const { pool, table, changes } = webTable;
  const result = await pool.change(async (client) => {
    const { pause: mayPause, readOnly, user } = await readChangePrivileges(client, table);
    if (readOnly) throw readOnlyError();
    if (!mayPause) {
      const grant = `GRANT SELECT, INSERT, DELETE ON ${table.pauses} TO ${user}`;
      throw new ApiError("FORBIDDEN", `the entry's user may not pause or resume: ${grant}`);
    }
    return await work(client, table);
  });
  webTable.forgetSummary();
  changes.noteChange();
  return result;
}

/** @throws ApiError INVALID; CONFLICT if the key is taken; NOT_FOUND for the task to copy from; FORBIDDEN; READ_ONLY */
export async function addOne({ pool, table, changes }: WebTable, body: NewTaskBody): Promise<AddedTask> {
  const { copy, ...task } = body;
  const row = asInvalid(() => toRow(omitUndefined(task), copy));
  const doubled = copy?.columns.find((name) => row.columns.has(name) || (name === "plan" && row.delay !== undefined));
  if (doubled !== undefined) throw new ApiError("INVALID", `${doubled}: expected one value, got it in copy, too`);
  const added = await pool.change(async (client) => {
    if ((await readChangePrivileges(client, table)).readOnly) throw readOnlyError();
    if (copy !== undefined) await requireTask(client, table, copy.id);
    try {
      const [id = ""] = await addTasks(client, table, [row]);
      return { id };
    } catch (error) {
      if (sqlState(error) === insufficientPrivilege) {
        throw await addForbidden(
          client,
          table,
          [...row.columns.keys(), ...(row.delay === undefined ? [] : ["plan"])],
          error,
        );
      }
      throw addError(error, table, row);
    }
  });
  changes.noteChange();
  return added;
}

async function requireTask(client: Client, { qualified }: TaskTable, id: string): Promise<void> {
  const { rows } = await client.query(`SELECT FROM ${qualified} WHERE id = $1::bigint`, [id]);
  if (rows.length === 0) throw new ApiError("NOT_FOUND", `there is no task ${id} to copy from in this table`);
}

async function addForbidden(
  client: Client,
  table: TaskTable,
  columns: readonly string[],
  error: unknown,
): Promise<ApiError> {
  const grants = await readMissingGrants(client, table, columns, false);
  const remedy = grants.length === 0 ? errorMessage(error) : grants.join("; ");
  return new ApiError("FORBIDDEN", `the entry's user may not add this task: ${remedy}`, { cause: error });
}

/** The message begins with the column whose value the server refuses, if it says so. */
function addError(error: unknown, table: TaskTable, row: NewRow): unknown {
  const options = { cause: error };
  const known = toAddError(error, table, [row]);
  if (known instanceof PgTaskError && known.code === "TASK_KEY_TAKEN") {
    return new ApiError("CONFLICT", "key: another task with this key waits", options);
  }
  // The user's triggers and functions may refuse the task, too.
  const isRefused = known instanceof PgTaskError || /^(?:P0|3[89])/.test(sqlState(error) ?? "");
  if (!isRefused) return error;
  const [broken] = findBrokenChecks(error, [row]);
  if (broken !== undefined) return new ApiError("INVALID", `${broken.column}: ${broken.demand}`, options);
  const column = findRefusedColumn(error, row);
  return new ApiError("INVALID", `${column === null ? "" : `${column}: `}${errorMessage(error)}`, options);
}

function asInvalid<T>(convert: () => T): T {
  try {
    return convert();
  } catch (error) {
    if (error instanceof PgTaskError) throw new ApiError("INVALID", error.message, { cause: error });
    throw error;
  }
}

const readOnlyError = (): ApiError =>
  new ApiError("READ_ONLY", "this server is a standby or read-only: only the primary takes changes");
