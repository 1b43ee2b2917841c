import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import type { TaskTable } from "../schema/taskTable.js";
import { clockStepMs, clockStepRetryMs } from "../model/tuning.js";
import { replanAhead } from "./clockSteps.sql.js";
import { lastingReason } from "./lastingReason.js";

/**
 * Replans schedules after the server's clock has been set back by more than `clockStepMs`. What was planned while the
 * clock was ahead would otherwise wait until the clock is there again.
 *
 * While the manager is connected, it compares the server's clock with its own monotonic one. The clock may also have been
 * set back while no manager was connected, so each new connection looks for rows that are from the future.
 */
export class ClockSteps {
  readonly #table: TaskTable;
  readonly #log: Log;
  /** The difference between the server's clock and the process's when they were last compared, in ms. */
  #offsetMs: number | null = null;
  /** How far from now, in ms, rows have to be from the future to be replanned. Null if nothing is to be replanned. */
  #aheadMs: number | null = clockStepMs;
  #notBefore = 0;

  constructor(options: { readonly table: TaskTable; readonly log: Log }) {
    this.#table = options.table;
    this.#log = options.log;
  }

  /** Called for each new connection, which may be to another server. */
  restart(): void {
    this.#offsetMs = null;
    this.#aheadMs = clockStepMs;
    this.#notBefore = 0;
  }

  /** Called with the server's clock, in ms since 1970, as soon as it has been read. */
  observe(clockMs: number): void {
    const offsetMs = clockMs - performance.now();
    if (this.#offsetMs !== null && this.#offsetMs - offsetMs > clockStepMs) {
      this.#aheadMs = 0;
      this.#notBefore = 0;
    }
    this.#offsetMs = offsetMs;
  }

  /** Time until the next step is due, in ms. Infinity if nothing is to be replanned. */
  get pauseMs(): number {
    if (this.#aheadMs === null) return Infinity;
    return Math.max(0, this.#notBefore - performance.now());
  }

  /**
   * Replans the schedules if that is due. An error that the server returns does not stop the manager's cycle.
   *
   * @returns whether anything was replanned
   * @throws if the connection is lost or the error is transient
   */
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
