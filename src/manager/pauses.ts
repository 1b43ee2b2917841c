import type { Client } from "../shared/database.js";
import { pauseLater, type PausedTask } from "./sql/pause.js";
import type { TaskTable } from "./table.js";

/** Tasks that a pause of their group did not reach since their row was locked: they wait for `retry`. */
export class Pauses {
  readonly #table: TaskTable;
  #left: PausedTask[] = [];

  constructor(table: TaskTable) {
    this.#table = table;
  }

  get size(): number {
    return this.#left.length;
  }

  add(tasks: readonly PausedTask[]): void {
    const ids = new Set(tasks.map(({ id }) => id));
    // A later run of the group may have met the same rows: its pause counts.
    this.#left = [...this.#left.filter(({ id }) => !ids.has(id)), ...tasks];
  }

  /** To be called from time to time, and first on a new connection, which holds none of them back. */
  async retry(client: Client): Promise<void> {
    if (this.#left.length === 0) return;
    this.#left = await pauseLater(client, this.#table, this.#left);
  }
}
