import { errorDefinitions } from "../../shared/errorCodes.js";
import type { Client } from "../../shared/postgres/client.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import { homeCheckMs } from "../model/tuning.js";
import { copyReport, readCopyReason } from "../schema/home.js";
import type { ManagerComponents } from "./components.js";

/**
 * Keeps tasks from starting while the table is a copy, because a copy must not run what its original runs. A copy is
 * found when the manager has connected, when the entry has changed, and when rows of another table are loaded.
 *
 *   in doubt ──at home──▶ at home ──the home table or the entry has changed──▶ in doubt
 *     │  ▲
 *     └──┴─copy: held, until it is accepted
 */
export class HomeGuard {
  readonly #client: Client;
  readonly #components: ManagerComponents;
  #isInDoubt = true;
  /** Why the table is a copy. Null if it is none, as far as is known. */
  #reason: string | null = null;
  #readAt = 0;

  constructor(client: Client, components: ManagerComponents) {
    this.#client = client;
    this.#components = components;
    this.doubt();
  }

  get isHeld(): boolean {
    return this.#reason !== null;
  }

  /** Lets nothing start until it is known whether the table is still at home here. */
  doubt(): void {
    this.#isInDoubt = true;
    this.#components.pendingResults.blocksAll = true;
    this.#components.wakeSignal.notify();
  }

  async mayStart(): Promise<boolean> {
    if (!this.#isInDoubt) return true;
    this.#isInDoubt = false;
    try {
      const reason = await this.#read();
      if (reason !== this.#reason) this.#setReason(reason);
    } catch (error) {
      if (!isTransient(error)) throw error;
      this.#isInDoubt = true;
    }
    // The home table may have been changed again meanwhile.
    this.#isInDoubt ||= this.isHeld;
    if (!this.#isInDoubt) this.#components.pendingResults.blocksAll = false;
    return !this.#isInDoubt;
  }

  /**
   * Reads the home table if it was not read for long: rows may have been loaded without a notification, because the
   * trigger was disabled. Does not wait for the answer.
   */
  check(): void {
    if (performance.now() - this.#readAt < Math.min(homeCheckMs, this.#components.resetMs)) return;
    void this.#lookAgain();
  }

  async #lookAgain(): Promise<void> {
    try {
      if ((await this.#read()) !== null) this.doubt();
    } catch {
      // The loop meets the error again, unless it was transient.
      this.doubt();
    }
  }

  async #read(): Promise<string | null> {
    this.#readAt = performance.now();
    return await readCopyReason(this.#client, this.#components.table, this.#components.entry);
  }

  #setReason(reason: string | null): void {
    const { table, sessions, send, log } = this.#components;
    // Tasks that are queued in sessions may be those of the other table.
    if (!this.isHeld) sessions.markStale();
    this.#reason = reason;
    if (reason === null) {
      log.info({ table: table.logName }, "copy accepted");
      return;
    }
    const { remedy } = errorDefinitions.SCHEMA_COPY;
    log.warn({ table: table.logName, reason, remedy }, "table is a copy, nothing starts");
    send({ type: "unavailable", reason: copyReport(reason, sessions.busy) });
  }
}
