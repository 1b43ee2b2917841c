import type { PgTask } from "./pgTask.js";
import type { StartOptions } from "./options.js";

export { PgTaskError } from "../shared/errors.js";
export type { ErrorCode, ErrorFamily } from "../shared/errorCodes.js";
export { finalStates, taskStates, type FinalState, type TaskState } from "../shared/taskState.js";
export type { TryError } from "../shared/tryErrors.js";
export type { ClusterRole } from "../shared/clusterStatus.js";
export type { Stall, TaskCounts } from "../shared/statistics.js";
export type { TaskChange, TaskFilter, TaskOutcome, TaskSummary } from "../tasks/types.js";
export type { Config, ConfigEntry, ConfigParameters, Secret } from "./config.js";
export type { WebhookOptions } from "../shared/config/webhooks.js";
export type { SqlClient, SqlPool, SqlPoolClient, SqlResult } from "./sqlClient.js";
export type { Logger } from "./logger.js";
export type { ArgObject, ArgValue, IfKeyTaken, NewTask, OwnValue, PlainObject } from "../tasks/newTask.js";
export type { EntryStatus, PgTask, PgTaskEvents } from "./pgTask.js";
export type {
  AddOptions,
  CallOptions,
  ChangesOptions,
  ConfigOptions,
  DeleteOptions,
  EmbeddedServerOptions,
  ListOptions,
  RetryOptions,
  StartOptions,
  TaskClientOptions,
  UrlOptions,
  WaitOptions,
  WebHandlerOptions,
  WebLogin,
} from "./options.js";
export { parseOutput, type OutputColumns, type OutputRow } from "./parseOutput.js";
export type { ChangedTask, Task } from "./task.js";
export type { TaskId } from "./taskId.js";
export { TaskClient } from "./taskClient.js";

/**
 * Runs pg-task in this process, until it is stopped.
 *
 * @returns a promise that resolves when pg-task is ready: this process leads, and each manager serves its table or has
 * reported why it cannot; or this process stands by, and the tables of its entries exist or 10 seconds have passed. While
 * the server cannot be reached, pg-task keeps trying.
 * @throws PgTaskError of the family CONFIG if the configuration cannot be used; START_ABORTED if `signal` is aborted
 * before pg-task is ready; an EMBEDDED error if the embedded server cannot be started
 */
export async function start(options: StartOptions = {}): Promise<PgTask> {
  // A program that only adds tasks does not load the code that runs them.
  const { runPgTask } = await import("./start.js");
  return await runPgTask(options);
}
