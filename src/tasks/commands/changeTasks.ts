import {
  changeStatement,
  keyChanges,
  keyTaken,
  type Change,
  type ChangeResult,
} from "../../manager/schema/changes.sql.js";
import type { TaskTable } from "../../manager/schema/taskTable.js";
import { errorMessage } from "../../shared/errors.js";
import { isServerError, sqlState, type Queryable } from "../../shared/postgres/client.js";
import { queryCanceled, uniqueViolation } from "../../shared/postgres/sqlStates.js";
import type { TaskState } from "../../shared/taskState.js";
import { hasUsers } from "../hasUsers.js";
import { fullQueueHint } from "../taskError.js";
import { isInTransaction, runInSavepoint } from "./savepoint.js";

export type { Change, ChangeResult };

/** If the server rejects the statement, the ids are split in halves, and each half is tried separately. */
export async function changeTasks(
  client: Queryable,
  table: TaskTable,
  change: Change,
  ids: readonly string[],
  { isFatal = () => false, callersClient = false, states = null }: ChangeOptions = {},
): Promise<ChangeResult[]> {
  const transaction = callersClient && (await isInTransaction(client));
  const keysOfRoles = keyChanges.has(change) && (await hasUsers(client, table));
  return await changeOrSplit(client, table, { change, states, isFatal, transaction, keysOfRoles }, ids);
}

export interface ChangeOptions {
  /** Whether an error ends the whole change, and is thrown. By default, only the loss of the connection does. */
  readonly isFatal?: (error: unknown) => boolean;
  /** Whether the client can be in a transaction of the caller. A rejected statement then leaves it usable. */
  readonly callersClient?: boolean;
  /**
   * The states to which a retry is limited. Checked while the row is locked, so that a task that somebody else has
   * retried meanwhile, and that has succeeded, does not run again.
   */
  readonly states?: readonly TaskState[] | null;
}

interface ChangeContext extends Required<Omit<ChangeOptions, "callersClient">> {
  readonly change: Change;
  readonly transaction: boolean;
  readonly keysOfRoles: boolean;
}

async function changeOrSplit(
  client: Queryable,
  table: TaskTable,
  kind: ChangeContext,
  ids: readonly string[],
): Promise<ChangeResult[]> {
  try {
    const work = (): Promise<ChangeResult[]> => changeTogether(client, table, kind, ids);
    return await (kind.transaction ? runInSavepoint(client, work) : work());
  } catch (error) {
    if (sqlState(error) === null || kind.isFatal(error)) throw error;
    if (kind.transaction && concernsTransaction(error)) throw error;
    const [id] = ids;
    if (ids.length === 1 && id !== undefined) {
      if (isKeyTaken(error, table)) return [unchanged(id, "refused", keyTaken)];
      return [unchanged(id, "failed", `${errorMessage(error)}${fullQueueHint(error)}`)];
    }
    const middle = ids.length >> 1;
    return [
      ...(await changeOrSplit(client, table, kind, ids.slice(0, middle))),
      ...(await changeOrSplit(client, table, kind, ids.slice(middle))),
    ];
  }
}

/**
 * Trying each task alone would not help: class 25 (read-only or aborted transaction), class 40 (serialization failure,
 * deadlock), a canceled statement.
 */
const concernsTransaction = (error: unknown): boolean => {
  const state = sqlState(error) ?? "";
  return /^(?:25|40)/.test(state) || state === queryCanceled;
};

/** The statement refuses such a task itself, unless the other one has come, or is retried, at the same time. */
const isKeyTaken = (error: unknown, { keyIndex }: TaskTable): boolean =>
  isServerError(error) && error.code === uniqueViolation && error.constraint === keyIndex;

const unchanged = (id: string, outcome: "refused" | "failed", reason: string): ChangeResult => ({
  id,
  outcome,
  state: null,
  attempt: 0,
  claimed: false,
  unlinked: false,
  schedule: null,
  keyWaitsIn: null,
  reason,
});

async function changeTogether(
  client: Queryable,
  table: TaskTable,
  { change, states, keysOfRoles }: ChangeContext,
  ids: readonly string[],
): Promise<ChangeResult[]> {
  const statement = changeStatement(table, change, { ids: "$1::bigint[]", states, keysOfRoles });
  return (await client.query<ChangeResult>(statement, [ids])).rows;
}

const batchSize = 500;

/**
 * @param onBatch called before each of several batches with the number of tasks so far
 * @returns a result for each id, in the order of the ids
 */
export async function changeInBatches(
  client: Queryable,
  table: TaskTable,
  change: Change,
  ids: readonly string[],
  onBatch: (done: number) => void = () => {},
  options: ChangeOptions = {},
): Promise<ChangeResult[]> {
  const results: ChangeResult[] = [];
  for (let from = 0; from < ids.length; from += batchSize) {
    if (ids.length > batchSize) onBatch(from);
    results.push(...(await changeTasks(client, table, change, ids.slice(from, from + batchSize), options)));
  }
  return results;
}
