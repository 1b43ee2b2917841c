import type { Client } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { Log } from "../../shared/log.js";
import type { OwnedTask, RemotePid, StartedTask } from "../model/tasks.js";
import type { TaskTable } from "../schema/taskTable.js";
import { changeRows } from "../sql/rejectedRows.js";
import { updateRemotePids, updateStarts } from "./updateRunning.sql.js";
import { WriteQueue } from "./writeQueue.js";

/** Shows in the rows of running tasks that they run and, for remote tasks, the pid of the remote backend. */
export class RunningRows {
  readonly #table: TaskTable;
  readonly #log: Log;
  readonly starts = new WriteQueue<StartedTask>();
  readonly remotePids = new WriteQueue<RemotePid>();

  constructor({ table, log }: { readonly table: TaskTable; readonly log: Log }) {
    this.#table = table;
    this.#log = log;
  }

  get isEmpty(): boolean {
    return this.starts.count + this.remotePids.count === 0;
  }

  get deferredCount(): number {
    return this.starts.deferredCount + this.remotePids.deferredCount;
  }

  requeueDeferred(): void {
    this.remotePids.requeueDeferred();
    this.starts.requeueDeferred();
  }

  async writeRemotePids(client: Client): Promise<void> {
    await this.#write(client, this.remotePids, (some) => updateRemotePids(client, this.#table, some));
  }

  async writeStarts(client: Client): Promise<void> {
    await this.#write(client, this.starts, (some) => updateStarts(client, this.#table, some));
  }

  /** An update that the server rejects is dropped: the result of the run is written anyway. */
  async #write<Task extends OwnedTask>(
    client: Client,
    queue: WriteQueue<Task>,
    update: (some: readonly Task[]) => Promise<ReadonlySet<string>>,
  ): Promise<void> {
    const tasks = queue.take();
    const unwritten = new Set(tasks);
    try {
      await changeRows(
        client,
        tasks,
        async (some) => {
          const locked = await update(some);
          for (const task of some) if (!locked.has(task.id)) unwritten.delete(task);
        },
        (task, error) => {
          if (isTransient(error)) return;
          const reason = toReport(error).message;
          this.#log.warn({ id: task.id, reason }, "cannot show the run in its row");
          unwritten.delete(task);
        },
      );
    } finally {
      queue.defer([...unwritten]);
    }
  }
}
