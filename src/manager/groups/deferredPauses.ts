import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import { RejectedRows, singleOut } from "../rejectedRows.js";
import { holdBack, pauseLater, type PausedTask } from "../sql/pauseGroup.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

/** Tasks that a pause of their group did not reach, since their row was locked or refused: they wait for `retry`. */
export class DeferredPauses {
  readonly #table: TaskTable;
  #left: PausedTask[] = [];
  readonly #refusals: RejectedRows;

  constructor(table: TaskTable, log: Log) {
    this.#table = table;
    this.#refusals = new RejectedRows(log);
  }

  get size(): number {
    return this.#left.length;
  }

  /** How many of them somebody has locked, as far as is known. */
  get locked(): number {
    return this.#left.length - this.#refusals.ids.length;
  }

  /** Until one that was refused is to be tried again, in ms; Infinity when there is none. */
  get retryMs(): number {
    return this.#refusals.pauseMs;
  }

  add(tasks: readonly PausedTask[]): void {
    const ids = new Set(tasks.map(({ id }) => id));
    // A later run of the group may have met the same rows: its pause counts.
    this.#left = [...this.#left.filter(({ id }) => !ids.has(id)), ...tasks];
  }

  /** To be called from time to time, and first on a new connection, which holds none of them back. */
  async retry(client: Client): Promise<void> {
    if (this.#left.length === 0) return;
    // For a new session, and for what was left by a statement of another one.
    await holdBack(client, this.#left);
    const waiting = new Set(this.#refusals.waiting);
    await singleOut(
      client,
      this.#left.filter(({ id }) => !waiting.has(id)),
      async (tasks) => {
        const locked = new Set((await pauseLater(client, this.#table, tasks)).map(({ id }) => id));
        for (const { id } of tasks) this.#refusals.delete(id);
        const free = new Set(tasks.filter(({ id }) => !locked.has(id)));
        this.#left = this.#left.filter((task) => !free.has(task));
      },
      ({ id }, error) => {
        this.#refusals.add(id, error, "pause refused by the server, it is tried again");
      },
    );
    await holdBack(client, this.#left);
  }
}
