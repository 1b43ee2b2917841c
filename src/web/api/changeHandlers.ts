import { sqlState, type Client } from "../../shared/postgres/client.js";
import { insufficientPrivilege, queryCanceled, readOnlyTransaction } from "../../shared/postgres/sqlStates.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import { changeTasks, type Change, type ChangeResult } from "../../tasks/commands/changeTasks.js";
import { endBlocker } from "../../tasks/commands/endBlocker.js";
import { describeChange, webRemedies } from "../../tasks/commands/describeChange.js";
import { pauseTasks, readPauses, resumeTasks } from "../../tasks/pauses.js";
import { readChangeEffects, type ChangeEffects } from "../../tasks/queries/changeEffects.js";
import { readChangePrivileges } from "../../tasks/queries/tableFacts.js";
import type { WebTable } from "../data/webTable.js";
import { readOnlyText } from "../data/connectionPool.js";
import { ApiError } from "../errors.js";
import type {
  ChangedTask,
  ChangeResults,
  ChangesBody,
  EndBlockerBody,
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

export async function makeChange(
  { pool, table, changes }: WebTable,
  change: WebChange,
  ids: readonly string[],
  states?: ChangesBody["states"],
): Promise<ChangeResult[]> {
  const results = await pool.change(async (client) => {
    const privileges = await readPrivileges(client, table);
    const needed = change === "delete" ? ["UPDATE", "DELETE"] : ["UPDATE"];
    const lacking = needed.filter((each) => !(each === "DELETE" ? privileges.delete : privileges.update));
    if (lacking.length > 0) {
      const grant = `GRANT ${lacking.join(", ")} ON ${table.qualified} TO ${privileges.user}`;
      throw forbidden(`${change.startsWith("run") ? "replan" : change.replace(/-.*/, "")} tasks`, grant);
    }
    return await changeTasks(client, table, change, [...new Set(ids)], { isFatal, states: states ?? null });
  });
  changes.noteChange();
  return results;
}

/** Whether trying each task alone would not help. */
const isFatal = (error: unknown): boolean => [queryCanceled, readOnlyTransaction].includes(sqlState(error) ?? "");

type CheckedChange = Pick<ChangesBody, "change"> & { readonly ids: readonly string[] };

/** Says what a change would bring about, and makes none. */
export const checkChange = async ({ pool, table }: WebTable, { change, ids }: CheckedChange): Promise<ChangeEffects> =>
  await pool.read((client) => readChangeEffects(client, table, change, ids));

/** @throws ApiError CONFLICT if the backend does not keep the task waiting; FORBIDDEN; READ_ONLY */
export async function endBlockerOf(
  { pool, table, changes }: WebTable,
  id: string,
  blocker: EndBlockerBody,
): Promise<{ readonly pid: number }> {
  const { pid } = blocker;
  await pool.change(async (client) => {
    const { update, user } = await readPrivileges(client, table);
    if (!update) throw forbidden("end what blocks tasks", `GRANT UPDATE ON ${table.qualified} TO ${user}`);
    try {
      const ended = await endBlocker(client, table, id, blocker);
      if (ended !== true) throw new ApiError("CONFLICT", `server process ${pid} does not keep task ${id} waiting`);
    } catch (error) {
      if (sqlState(error) !== insufficientPrivilege) throw error;
      throw forbidden(
        `end server process ${pid}`,
        `GRANT pg_signal_backend TO ${user}; only superusers can end a superuser's`,
      );
    }
  });
  changes.noteChange();
  return { pid };
}

const forbidden = (what: string, grant: string): ApiError =>
  new ApiError("FORBIDDEN", `the entry's user may not ${what}: ${grant}`);

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
    const { pause: mayPause, user } = await readPrivileges(client, table);
    if (!mayPause) throw forbidden("pause or resume", `GRANT SELECT, INSERT, DELETE ON ${table.pauses} TO ${user}`);
    return await work(client, table);
  });
  webTable.forgetSummary();
  changes.noteChange();
  return result;
}

/** @throws ApiError READ_ONLY */
export async function readPrivileges(client: Client, table: TaskTable): ReturnType<typeof readChangePrivileges> {
  const privileges = await readChangePrivileges(client, table);
  if (privileges.readOnly) throw new ApiError("READ_ONLY", readOnlyText);
  return privileges;
}
