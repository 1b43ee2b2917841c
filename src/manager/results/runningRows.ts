import type { Client } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { Log } from "../../shared/log.js";
import type { OwnedTask, RemotePid, StartedTask } from "../model/tasks.js";
import type { TaskTable } from "../schema/taskTable.js";
import { changeRows } from "../sql/rejectedRows.js";
import type { RetryQueue } from "./retryQueue.js";
import { remotePidUpdate, startUpdate, updateRunning, type RunningUpdate } from "./updateRunning.sql.js";

export interface RunningRowsOptions {
  readonly table: TaskTable;
  readonly starts: RetryQueue<StartedTask>;
  readonly remotePids: RetryQueue<RemotePid>;
  readonly log: Log;
}

/**
 * Updates the rows of running tasks: sets the state `WORK` and, in rows of remote tasks, the pid of the backend on the
 * remote server.
 */
export class RunningRows {
  readonly #components: RunningRowsOptions;

  constructor(components: RunningRowsOptions) {
    this.#components = components;
  }

  get isEmpty(): boolean {
    const { remotePids, starts } = this.#components;
    return remotePids.isEmpty && starts.isEmpty;
  }

  /** How many updates wait because their rows are locked. */
  get deferredCount(): number {
    const { remotePids, starts } = this.#components;
    return starts.deferredCount + remotePids.deferredCount;
  }

  requeueDeferred(): void {
    this.#components.remotePids.requeueDeferred();
    this.#components.starts.requeueDeferred();
  }

  async writeRemotePids(client: Client): Promise<void> {
    await this.#write(client, remotePidUpdate, this.#components.remotePids);
  }

  async writeStarts(client: Client): Promise<void> {
    await this.#write(client, startUpdate, this.#components.starts);
  }

  /**
   * Writes the updates of a queue. An update that the server rejects is dropped, because the result of the run is
   * written anyway.
   */
  async #write<Task extends OwnedTask>(
    client: Client,
    update: RunningUpdate<Task>,
    queue: RetryQueue<Task>,
  ): Promise<void> {
    const { log, table } = this.#components;
    const tasks = queue.takeAll();
    const unwritten = new Set(tasks);
    try {
      await changeRows(
        client,
        tasks,
        async (some) => {
          const locked = await updateRunning(client, table, update, some);
          for (const task of some) if (!locked.has(task.id)) unwritten.delete(task);
        },
        (task, error) => {
          if (isTransient(error)) return;
          const reason = toReport(error).message;
          log.warn({ id: task.id, reason }, "cannot show the run in its row");
          unwritten.delete(task);
        },
      );
    } finally {
      queue.defer([...unwritten]);
    }
  }
}
