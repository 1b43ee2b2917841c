import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import { RejectedRows, changeRows } from "../sql/rejectedRows.js";
import { setDeferred, retryPauses, type DeferredPause } from "../sql/pauseGroup.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

/** Tasks that still have to be replanned because of a pause of their group, since their rows were locked or rejected. */
export class DeferredPauses {
  readonly #table: TaskTable;
  #deferred: DeferredPause[] = [];
  readonly #rejected: RejectedRows;

  constructor(table: TaskTable, log: Log) {
    this.#table = table;
    this.#rejected = new RejectedRows(log);
  }

  get size(): number {
    return this.#deferred.length;
  }

  get locked(): number {
    return this.#deferred.length - this.#rejected.ids.length;
  }

  get retryMs(): number {
    return this.#rejected.nextRetryMs;
  }

  add(tasks: readonly DeferredPause[]): void {
    const ids = new Set(tasks.map(({ id }) => id));
    // If a later pause of the group could not replan a task either, the later pause counts.
    this.#deferred = [...this.#deferred.filter(({ id }) => !ids.has(id)), ...tasks];
  }

  /** Also called for each new connection: the list of deferred tasks is kept in a setting of the connection. */
  async retry(client: Client): Promise<void> {
    if (this.#deferred.length === 0) return;
    // The current connection's list lacks tasks that were deferred by a statement on another connection.
    await setDeferred(client, this.#deferred);
    const waiting = new Set(this.#rejected.delayedIds);
    await changeRows(
      client,
      this.#deferred.filter(({ id }) => !waiting.has(id)),
      async (tasks) => {
        const locked = new Set((await retryPauses(client, this.#table, tasks)).map(({ id }) => id));
        for (const { id } of tasks) this.#rejected.delete(id);
        const free = new Set(tasks.filter(({ id }) => !locked.has(id)));
        this.#deferred = this.#deferred.filter((task) => !free.has(task));
      },
      ({ id }, error) => void this.#rejected.add(id, error, "pause rejected by the server, retrying"),
    );
    await setDeferred(client, this.#deferred);
  }
}
