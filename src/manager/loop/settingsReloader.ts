import { Backoff, sleep } from "../../shared/backoff.js";
import { refuseTo } from "../../shared/config/serverSettings.js";
import type { Entry, TableLocation } from "../../shared/config/types.js";
import { toReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import { connectManager } from "../connection.js";
import { locateTable } from "../schema/locateTable.js";
import { ensureTable } from "../schema/ensureTable.js";
import { readSettings, type ManagerSettings } from "../settings.js";
import type { TaskTable } from "../schema/taskTable.js";

export interface SettingsReloaderOptions {
  readonly table: TaskTable;
  /** The entry as it is now. */
  readonly entry: () => Entry;
  /** Gets the settings as soon as they are read. */
  readonly settled: (settings: ManagerSettings) => void;
  /** Gets where the tasks are by now; false when that is not this table any more. */
  readonly placed: (place: TableLocation) => boolean;
  /** Called after each try: what was asked for is done, or has to wait. */
  readonly answered: () => void;
  readonly signal: AbortSignal;
  readonly log: Log;
}

/**
 * Takes changed parameters up while the manager works, and makes again what somebody has dropped. What ALTER DATABASE and ALTER ROLE have set
 * shows only in a new session, and a change of the table's defaults must not hold up the turns, so
 * this has a connection of its own for as long as it takes. A locked table is tried again with
 * growing pauses, between which producers go on.
 */
export class SettingsReloader {
  readonly #options: SettingsReloaderOptions;
  /** Aborted when parameters have come that the work under way does not know. */
  #outdated = new AbortController();
  /** How often something was missing. */
  #missed = 0;
  #running = false;

  constructor(options: SettingsReloaderOptions) {
    this.#options = options;
  }

  /** Parameters have changed: begins, or begins anew. */
  start(): void {
    this.#outdated.abort();
    this.#begin();
  }

  /** Something was missing: begins, or looks once more behind a try that is under way. A pause before the next one stays. */
  mend(): void {
    this.#missed += 1;
    this.#begin();
  }

  #begin(): void {
    if (this.#running) return;
    this.#running = true;
    void this.#untilDone();
  }

  async #untilDone(): Promise<void> {
    const { entry, answered, signal, log } = this.#options;
    const backoff = new Backoff({
      firstMs: 500,
      maxMs: entry().parameters["pg_conf.restart"] * 1000,
    });
    let said: string | null = null;
    while (!signal.aborted) {
      this.#outdated = new AbortController();
      const outdated = this.#outdated.signal;
      const missed = this.#missed;
      try {
        await this.#once();
        answered();
        if (!outdated.aborted && missed === this.#missed) break;
      } catch (error) {
        const reason = toReport(error);
        if (said !== reason.message) {
          said = reason.message;
          log.warn({ code: reason.code, reason: reason.message }, "changed parameters wait");
        }
        answered();
        await sleep(backoff.next(), AbortSignal.any([signal, outdated]));
      }
    }
    this.#running = false;
  }

  async #once(): Promise<void> {
    const { table, log, settled, placed } = this.#options;
    const entry = this.#options.entry();
    const client = await connectManager(entry);
    try {
      if (!placed(await locateTable(client, entry, refuseTo(log)))) return;
      settled(await readSettings(client, entry, log));
      await ensureTable(client, table, entry, log);
    } finally {
      await client.end().catch(() => {});
    }
  }
}
