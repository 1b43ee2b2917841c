import { sqlState, type Client } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import { prune, type PruneStep } from "./prune.sql.js";
import type { TaskTable } from "../schema/taskTable.js";

/** The least pause between two steps that found nothing to remove, in ms. */
const restMs = 1000;
/** After so long it looks at the next occasion: users may have changed what is kept. */
const staleMs = 5 * 60_000;

/** Removes finished rows that have been kept long enough, a little at a time, round and round. */
export class Pruner {
  readonly #table: TaskTable;
  readonly #log: Log;
  #from = "0";
  #notBefore = 0;
  /** Whether rows may have finished that the last round has not seen. */
  #touched = true;
  /** When the first of the rows that the last round left, and this one so far, may be removed. */
  #dueAt = Infinity;
  #roundDueAt = Infinity;
  /** When the last round came to its end. */
  #roundAt = performance.now();
  #removed = 0;
  #refused = false;

  constructor(options: { readonly table: TaskTable; readonly log: Log }) {
    this.#table = options.table;
    this.#log = options.log;
  }

  /** Rows may have finished. */
  touch(): void {
    this.#touched = true;
  }

  /** How long there is nothing to do, in ms. */
  get pauseMs(): number {
    const now = performance.now();
    return Math.max(0, this.#notBefore - now, this.#touched ? 0 : this.#dueAt - now);
  }

  /**
   * One step, if it is time for one.
   *
   * @returns whether another one has something to do right away.
   */
  async step(client: Client, limit: number): Promise<boolean> {
    if (this.pauseMs > 0 && performance.now() - this.#roundAt < staleMs) return false;
    if (this.#from === "0") {
      this.#touched = false;
      this.#roundDueAt = Infinity;
    }
    const { deleted, next, dueMs } = await this.#prune(client, limit);
    this.#from = next;
    this.#roundDueAt = Math.min(this.#roundDueAt, performance.now() + (dueMs ?? Infinity));
    this.#removed += deleted;
    if (deleted > 0 || next !== "0") return true;
    this.#roundAt = performance.now();
    this.#notBefore = this.#roundAt + restMs;
    this.#dueAt = this.#roundDueAt;
    if (this.#removed > 0) this.#log.debug({ tasks: this.#removed }, "finished tasks removed");
    this.#removed = 0;
    return false;
  }

  /** What the server refuses, such as to leave a foreign key without its row, holds up nothing else. */
  async #prune(client: Client, limit: number): Promise<PruneStep> {
    try {
      const step = await prune(client, this.#table, this.#from, limit);
      this.#refused = false;
      return step;
    } catch (error) {
      this.#notBefore = performance.now() + restMs;
      // What may pass by itself, such as a lock, is tried again.
      this.#touched ||= isTransient(error);
      if (sqlState(error) === null || isTransient(error)) throw error;
      if (!this.#refused)
        this.#log.warn({ reason: toReport(error).message }, "finished tasks cannot be removed");
      this.#refused = true;
      return { deleted: 0, next: "0", dueMs: null };
    }
  }
}
