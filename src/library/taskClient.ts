import type { TaskChange, TaskFilter, TaskOutcome, TaskSummary } from "../tasks/types.js";
import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { taskTable, type TaskTable } from "../manager/schema/taskTable.js";
import { PgTaskError } from "../shared/errors.js";
import { describeValue } from "../shared/describeValue.js";
import { sqlState, type Queryable } from "../shared/postgres/client.js";
import { readOnlyTransaction } from "../shared/postgres/sqlStates.js";
import type { NewRow } from "../tasks/commands/addTask.js";
import { changeInBatches, type Change } from "../tasks/commands/changeTasks.js";
import { describeChange, libraryRemedies } from "../tasks/commands/describeChange.js";
import { listTasks, type TaskList } from "../tasks/queries/listTasks.js";
import { readTableExistence } from "../tasks/queries/tableExistence.js";
import { ChangeFollower } from "../tasks/queries/taskChanges.js";
import { OutcomePoller, readOutcomes } from "../tasks/queries/taskOutcome.js";
import { toTaskError } from "../tasks/taskError.js";
import { addRows } from "./addRows.js";
import { closedError, Connections } from "./connections.js";
import { getTask } from "./getTask.js";
import { nameInvalidTime } from "./nameRefused.js";
import type { NewTask } from "../tasks/newTask.js";
import type { SqlClient, SqlPool } from "./sqlClient.js";
import type { ChangedTask, Task } from "./task.js";
import { toRow } from "../tasks/commands/toRow.js";
import {
  addChecks,
  callChecks,
  changesChecks,
  checkOptions,
  checkTask,
  clientChecks,
  deleteChecks,
  listChecks,
  refuseConditions,
  retryChecks,
  waitChecks,
} from "./optionChecks.js";
import type {
  TaskClientOptions,
  CallOptions,
  AddOptions,
  RetryOptions,
  DeleteOptions,
  WaitOptions,
  ListOptions,
  ChangesOptions,
} from "./options.js";
import { idText, type TaskId } from "./taskId.js";

/** How long `changes` pauses between two looks at the table, in ms: at first and after a change, and at most. */
const changesPauseMs = { first: 50, longest: 1_000 };
/** A pause is at least this many times as long as reading takes, so that the server is not loaded. */
const restFactor = 4;

/**
 * Adds, reads and changes the tasks of one table.
 *
 * The connection is a Pool of `pg`, a Client of `pg`, or a URL, for which the TaskClient opens up to four connections when
 * it needs them. Every method throws a `PgTaskError`, whose `code` says what happened (docs/errors.md).
 */
export class TaskClient {
  readonly #table: TaskTable;
  readonly #connections: Connections;
  readonly #poller: OutcomePoller;

  /**
   * Creates a client. It connects when a method is called.
   *
   * @throws PgTaskError USAGE if `connection` is none of the three
   */
  constructor(connection: SqlPool | SqlClient | string, options: TaskClientOptions = {}) {
    checkOptions(options, clientChecks, "an option of TaskClient");
    const { schema = "public", table = "task" } = options;
    const { acquireTimeoutMs = 10_000, reconnectMs = 30_000, answerTimeoutMs = 60_000 } = options;
    this.#table = taskTable(schema, table);
    this.#connections = new Connections(connection, { acquireTimeoutMs, reconnectMs, answerTimeoutMs });
    this.#poller = new OutcomePoller((ids) =>
      this.#connections.runPatiently((client) => readOutcomes(client, this.#table, ids), { toError: this.#toError }),
    );
  }

  /**
   * Adds a task, given as its SQL or with its options.
   *
   * @returns the task's id; if its key is taken, null with `skip`, and the id of the waiting task with `join`
   * @throws PgTaskError TASK_REJECTED if the table refuses a value; TASK_KEY_TAKEN; USAGE for a value of a wrong type, or
   * for `skip` or `join` without a key
   */
  add(task: NewTask | string, options?: AddOptions & { readonly ifKeyTaken?: "error" | "join" }): Promise<string>;
  /** Adds a task unless another task with its key waits. */
  add(task: NewTask | string, options: AddOptions): Promise<string | null>;
  async add(task: NewTask | string, options: AddOptions = {}): Promise<string | null> {
    checkOptions(options, addChecks, "an option of add");
    const [id = null] = await this.#add([toCheckedRow(task)], options);
    return id;
  }

  /**
   * Adds tasks: all of them, or none if it fails. (With a Client, tasks that need several statements are atomic only in a
   * transaction. A statement holds up to 65,535 values.)
   *
   * @returns the tasks' ids in the order of the tasks: with `skip` without those that were left out, with `join` with the
   * ids of the waiting tasks in their places
   * @throws PgTaskError TASK_REJECTED if the table refuses a value; TASK_KEY_TAKEN; USAGE for a task that is none, or
   * for a value of a wrong type. The message names the task as
   * `tasks[INDEX]`; with a Client only if the server says which one it refuses
   */
  async addMany(tasks: Iterable<NewTask | string>, options: AddOptions = {}): Promise<string[]> {
    checkOptions(options, addChecks, "an option of addMany");
    if (!isIterable(tasks)) throw new PgTaskError("USAGE", `expected an array of tasks, got ${describeValue(tasks)}`);
    return await this.#add([...tasks].map(toCheckedRow), options);
  }

  /**
   * Reads a task.
   *
   * @returns null if there is no such task
   */
  async get(id: TaskId, options: CallOptions = {}): Promise<Task | null> {
    checkOptions(options, callChecks, "an option of get");
    const text = idText(id);
    return await this.#run(options, (client) => getTask(client, this.#table, text));
  }

  /**
   * Waits until a task has ended, whether it succeeds or not. Any number of waits need only one connection at a time.
   *
   * @throws PgTaskError TASK_MISSING if there is no such task, or if its row is deleted meanwhile; the signal's reason
   * when the signal is aborted
   */
  async wait(id: TaskId, options: WaitOptions = {}): Promise<TaskOutcome> {
    checkOptions(options, waitChecks, "an option of wait");
    const text = idText(id);
    const { signal } = options;
    // One signal often ends many waits, each of which adds a listener.
    if (signal !== undefined) setMaxListeners(0, signal);
    let existed = false;
    const onPoll = (): void => void (existed = true);
    const outcome = await this.#poller.wait(text, { signal, onPoll });
    if (outcome !== null) return outcome;
    throw new PgTaskError(
      "TASK_MISSING",
      existed
        ? `the row of task ${text} was deleted while its end was waited for; a task without output and error is deleted when it ends, unless it was added with delete: false`
        : `no task ${text} in ${this.#table.qualified}: it was deleted, or the transaction that added it was rolled back or has not been committed`,
    );
  }

  /** Stops a task: keeps a waiting one from running, and cancels a running one. */
  stop(id: TaskId, options?: CallOptions): Promise<ChangedTask>;
  /** Stops tasks. */
  stop(ids: readonly TaskId[], options?: CallOptions): Promise<ChangedTask[]>;
  async stop(ids: TaskId | readonly TaskId[], options: CallOptions = {}): Promise<ChangedTask | ChangedTask[]> {
    checkOptions(options, callChecks, "an option of stop");
    return await this.#change("stop", ids, options);
  }

  /** Runs a finished task again, in its own row. Without `states`, this includes one that is `DONE`. */
  retry(id: TaskId, options?: RetryOptions): Promise<ChangedTask>;
  /** Runs finished tasks again, in their own rows. Without `states`, this includes those that are `DONE`. */
  retry(ids: readonly TaskId[], options?: RetryOptions): Promise<ChangedTask[]>;
  async retry(ids: TaskId | readonly TaskId[], options: RetryOptions = {}): Promise<ChangedTask | ChangedTask[]> {
    checkOptions(options, retryChecks, "an option of retry");
    return await this.#change("retry", ids, options);
  }

  /** Deletes a task. */
  delete(id: TaskId, options?: DeleteOptions): Promise<ChangedTask>;
  /** Deletes tasks. */
  delete(ids: readonly TaskId[], options?: DeleteOptions): Promise<ChangedTask[]>;
  async delete(ids: TaskId | readonly TaskId[], options: DeleteOptions = {}): Promise<ChangedTask | ChangedTask[]> {
    checkOptions(options, deleteChecks, "an option of delete");
    return await this.#change(options.running === true ? "delete even running" : "delete", ids, options);
  }

  /**
   * Yields tasks, newest first. The tasks are read page by page, so tasks that are added meanwhile are not yielded, and
   * those that are deleted meanwhile may be.
   *
   * @throws PgTaskError USAGE for `waitingFor` if tasks of this table cannot wait for others, and for `key` if they cannot
   * have keys
   */
  async *list(options: ListOptions = {}): AsyncGenerator<TaskSummary, void, void> {
    checkOptions(options, listChecks, "an option of list");
    const { before, waitingFor, characters = 1_000, pageSize = 100, signal, ...filter } = options;
    const ending = this.#endingWith(signal);
    const predecessor = waitingFor === undefined ? undefined : idText(waitingFor);
    let next = before === undefined ? null : idText(before);
    do {
      ending.throwIfAborted();
      const request = { filter, limit: pageSize, before: next ?? undefined, waitingFor: predecessor, characters };
      // A filter that matches few tasks would otherwise keep one statement after another from being aborted.
      const enough = (): boolean => ending.aborted;
      const read = (client: Queryable): Promise<TaskList> => listTasks(client, this.#table, request, enough);
      const page = await this.#readPatiently(read, filter, ending);
      ending.throwIfAborted();
      yield* page.tasks;
      ({ next } = page);
    } while (next !== null);
  }

  /**
   * Yields changes of tasks' states as they happen: of the tasks that are unfinished now or are added later, or of given
   * ones. A task that passes through a state quickly can skip it, but its last state is always yielded. The iterator
   * remembers the state of each unfinished task, and reads it again at intervals of 50 ms to a second.
   *
   * A task that had ended before is followed only if its id is given. Whether a task matches the filter is decided when
   * the iterator sees it for the first time.
   *
   * @throws PgTaskError USAGE for `key` if tasks of this table cannot have keys, and for `ids` beside other conditions; the
   * signal's reason when the signal is aborted
   */
  async *changes(options: ChangesOptions = {}): AsyncGenerator<TaskChange, void, void> {
    checkOptions(options, changesChecks, "an option of changes");
    const { ids, signal, ...filter } = options;
    if (ids !== undefined) refuseConditions(filter);
    const ending = this.#endingWith(signal);
    const follower = new ChangeFollower(this.#table, { ...filter, ids: ids?.map(idText) });
    for (let pauseMs = changesPauseMs.first; !follower.isDone;) {
      ending.throwIfAborted();
      let tookMs = 0;
      const read = async (client: Queryable): Promise<TaskChange[]> => {
        // Without the time for which there was no connection: after an outage, the pause would be a multiple of it.
        const began = performance.now();
        const found = await follower.read(client);
        tookMs = performance.now() - began;
        return found;
      };
      const changes = await this.#readPatiently(read, filter, ending);
      yield* changes;
      if (follower.isDone) return;
      pauseMs = changes.length > 0 ? changesPauseMs.first : Math.min(changesPauseMs.longest, pauseMs * 1.5);
      await sleep(Math.max(pauseMs, tookMs * restFactor), undefined, { signal: ending }).catch(() => {});
    }
  }

  /**
   * Ends the client: `wait`, `list` and `changes` fail with CONNECTION_CLOSED, and the connections that were opened for a
   * URL are closed. A pool or client of the caller stays open.
   */
  async end(): Promise<void> {
    this.#poller.fail(closedError());
    await this.#connections.end();
  }

  /** The same as `end`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
  }

  async #add(rows: readonly NewRow[], options: AddOptions): Promise<string[]> {
    try {
      return await addRows(this.#connections, this.#table, rows, options);
    } catch (error) {
      throw this.#toError(error);
    }
  }

  async #change(
    change: Change,
    ids: TaskId | readonly TaskId[],
    options: RetryOptions,
  ): Promise<ChangedTask | ChangedTask[]> {
    const isOne = !isArray(ids);
    const texts = isOne ? [idText(ids)] : ids.map(idText);
    const results = await this.#run(options, async (client) => {
      // Otherwise, the result for each task would say so.
      if ((await readTableExistence(client, this.#table)) === "no") {
        throw new PgTaskError("SCHEMA_MISSING", `no table ${this.#table.qualified} in this database`);
      }
      return await changeInBatches(client, this.#table, change, texts, undefined, {
        callersClient: options.client !== undefined || this.#connections.areCallers,
        states: options.states ?? null,
        isFatal: (error) => sqlState(error) === readOnlyTransaction,
      });
    });
    const changed = results.map((result): ChangedTask => {
      const { id, outcome, state } = result;
      return { id, outcome, state, text: describeChange(change, result, libraryRemedies) };
    });
    const [first] = changed;
    return isOne && first !== undefined ? first : changed;
  }

  async #run<T>({ client }: CallOptions, work: (client: Queryable) => Promise<T>): Promise<T> {
    try {
      return await (client === undefined ? this.#connections.run(work) : this.#connections.runOn(client, work));
    } catch (error) {
      throw this.#toError(error);
    }
  }

  async #readPatiently<T>(
    read: (client: Queryable) => Promise<T>,
    filter: TaskFilter,
    signal: AbortSignal,
  ): Promise<T> {
    const toError = (error: unknown): unknown => this.#toError(nameInvalidTime(error, filter));
    return await this.#connections.runPatiently(read, { toError, signal });
  }

  #endingWith(signal: AbortSignal | undefined): AbortSignal {
    const { closing } = this.#connections;
    return signal === undefined ? closing : AbortSignal.any([signal, closing]);
  }

  readonly #toError = (error: unknown): unknown => toTaskError(error, this.#table);
}

/** @param index of the task, which the message of an error then names */
function toCheckedRow(task: NewTask | string, index?: number): NewRow {
  try {
    checkTask(task);
    return toRow(task);
  } catch (error) {
    if (!(error instanceof PgTaskError) || index === undefined) throw error;
    throw new PgTaskError(error.code, `tasks[${index}]: ${error.message}`, { cause: error });
  }
}

/** The same as `Array.isArray`, which does not recognize readonly arrays. */
const isArray = (given: TaskId | readonly TaskId[]): given is readonly TaskId[] => Array.isArray(given);

const isIterable = (given: unknown): boolean => typeof given === "object" && given !== null && Symbol.iterator in given;
