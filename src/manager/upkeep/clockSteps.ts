import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import type { TaskTable } from "../schema/taskTable.js";
import { lastingReason } from "../sql/rejectedRows.js";
import { clockStepMs, clockStepRetryMs } from "../model/tuning.js";
import { replanAhead } from "./clockSteps.sql.js";

/**
 * Replans schedules after the server's clock has been set back. They would otherwise wait until it is there again. The
 * clock is compared with the monotonic one, and each new connection looks for rows from the future.
 */
export class ClockSteps {
  readonly #table: TaskTable;
  readonly #log: Log;
  #offsetMs: number | null = null;
  /** How far in the future, in ms, rows have to be to be replanned. Null if nothing is to be replanned. */
  #aheadMs: number | null = clockStepMs;
  #notBefore = 0;

  constructor(options: { readonly table: TaskTable; readonly log: Log }) {
    this.#table = options.table;
    this.#log = options.log;
  }

  restart(): void {
    this.#offsetMs = null;
    this.#aheadMs = clockStepMs;
    this.#notBefore = 0;
  }

  /** The clock was watched since the last manager looked. */
  settle(): void {
    this.#aheadMs = null;
  }

  /** Called with the server's clock, in ms since 1970. */
  observe(clockMs: number): void {
    const offsetMs = clockMs - performance.now();
    if (this.#offsetMs !== null && this.#offsetMs - offsetMs > clockStepMs) {
      this.#aheadMs = 0;
      this.#notBefore = 0;
    }
    this.#offsetMs = offsetMs;
  }

  get pauseMs(): number {
    if (this.#aheadMs === null) return Infinity;
    return Math.max(0, this.#notBefore - performance.now());
  }

  /** Returns whether any was replanned. Throws if the connection is lost or the error is transient. */
  async step(client: Client): Promise<boolean> {
    if (this.#aheadMs === null || this.pauseMs > 0) return false;
    try {
      const { replanned, locked } = await replanAhead(client, this.#table, this.#aheadMs);
      if (replanned > 0) this.#log.warn({ replanned }, "server's clock was set back, schedules replanned");
      if (locked > 0) this.#notBefore = performance.now() + clockStepRetryMs;
      else this.#aheadMs = null;
      return replanned > 0;
    } catch (error) {
      const reason = lastingReason(error);
      this.#log.warn({ reason }, "cannot replan schedules after the server's clock was set back");
      this.#aheadMs = null;
      return false;
    }
  }
}
