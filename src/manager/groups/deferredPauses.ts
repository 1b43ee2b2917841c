import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import { RejectedRows, changeRows } from "../rejectedRows.js";
import { setDeferred, retryPauses, type DeferredPause } from "../sql/pauseGroup.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

/**
 * Tasks that could not be replanned (given a later planned time) when their group paused, because their rows were
 * locked or the server rejected the change. `retry` tries again.
 */
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

  /** How many of these tasks have locked rows, as far as is known. */
  get locked(): number {
    return this.#deferred.length - this.#rejected.ids.length;
  }

  /** Time until a rejected task can be retried, in ms. Infinity if no task was rejected. */
  get retryMs(): number {
    return this.#rejected.nextRetryMs;
  }

  add(tasks: readonly DeferredPause[]): void {
    const ids = new Set(tasks.map(({ id }) => id));
    // If a later run of the group met the same rows, the pause after that later run counts.
    this.#deferred = [...this.#deferred.filter(({ id }) => !ids.has(id)), ...tasks];
  }

  /**
   * Replans the deferred tasks whose rows are free. Called periodically, and at the start of each new connection,
   * because the list of deferred tasks is a session setting that a new connection lacks.
   */
  async retry(client: Client): Promise<void> {
    if (this.#deferred.length === 0) return;
    // A new session lacks this list. In the current session, the list lacks tasks that a statement of another session
    // has deferred.
    await setDeferred(client, this.#deferred);
    const waiting = new Set(this.#rejected.pausedIds);
    await changeRows(
      client,
      this.#deferred.filter(({ id }) => !waiting.has(id)),
      async (tasks) => {
        const locked = new Set((await retryPauses(client, this.#table, tasks)).map(({ id }) => id));
        for (const { id } of tasks) this.#rejected.delete(id);
        const free = new Set(tasks.filter(({ id }) => !locked.has(id)));
        this.#deferred = this.#deferred.filter((task) => !free.has(task));
      },
      ({ id }, error) => {
        this.#rejected.add(id, error, "pause rejected by the server, retrying");
      },
    );
    await setDeferred(client, this.#deferred);
  }
}
