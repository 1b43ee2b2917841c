import { Backoff, sleep } from "../../shared/backoff.js";
import { logInvalidSettings } from "../../shared/config/serverSettings.js";
import type { Entry, TableLocation } from "../../shared/config/types.js";
import { toReport, type ErrorReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import { connectManager } from "./connection.js";
import { locateTable } from "../schema/locateTable.js";
import { ensureTable } from "../schema/ensureTable.js";
import { logUnknownZones } from "../schema/unknownZones.js";
import { readSettings, type ManagerSettings } from "../model/settings.js";
import type { TaskTable } from "../schema/taskTable.js";

export interface SettingsReloaderOptions {
  readonly table: TaskTable;
  /** Returns the current entry (the task table's configuration). */
  readonly entry: () => Entry;
  /** Receives the settings as soon as they have been read. */
  readonly settingsRead: (settings: ManagerSettings) => void;
  /** Receives the current location of the tasks. Returns false if they are in another table than the manager's. */
  readonly tableLocated: (place: TableLocation) => boolean;
  /** Called when the parameters by which a copy is told may have changed. */
  readonly homeDoubted: () => void;
  /** Receives the reason why the table must not be served any longer: it was moved. */
  readonly refusedTable: (reason: ErrorReport) => void;
  /** Called when the server has accepted a connection. */
  readonly accepted: () => void;
  /** Receives the reason why the server has refused a connection. It would refuse sessions too. */
  readonly refused: (reason: ErrorReport) => void;
  /** Called after each attempt, whether it succeeded or not. */
  readonly attempted: () => void;
  readonly signal: AbortSignal;
  readonly log: Log;
}

/**
 * Applies changed parameters and recreates dropped objects while the manager works. It opens a short-lived connection
 * of its own, for two reasons: settings of ALTER DATABASE and ALTER ROLE apply only to new sessions, and changing
 * column defaults must not block the manager's cycles. If the table is locked, the reloader retries at growing
 * intervals, and producers can continue in between.
 *
 *     idle ──restart, restore──▶ attempt ──succeeded, nothing new requested──▶ idle
 *                                 ▲   │
 *                                 │   └─failed─▶ waiting
 *                                 └──restart, or the wait is over──┘
 */
export class SettingsReloader {
  readonly #options: SettingsReloaderOptions;
  /** Aborted when new parameters arrive that the current attempt does not use. */
  #outdated = new AbortController();
  /** How many times `restore` was called. */
  #restoreRequests = 0;
  #running = false;

  constructor(options: SettingsReloaderOptions) {
    this.#options = options;
  }

  /** Applies changed parameters. If the last attempt failed, the next one starts at once. */
  restart(): void {
    this.#outdated.abort();
    this.#begin();
  }

  /**
   * Recreates missing objects, after the current attempt if there is one. If the last attempt failed, the delay before
   * the next one is not shortened.
   */
  restore(): void {
    this.#restoreRequests += 1;
    this.#begin();
  }

  #begin(): void {
    if (this.#running) return;
    this.#running = true;
    void this.#run();
  }

  async #run(): Promise<void> {
    const { entry, attempted, refused, refusedTable, signal, log } = this.#options;
    const backoff = new Backoff({
      firstMs: 500,
      maxMs: entry().parameters["pg_conf.restart"] * 1000,
    });
    let logged: string | null = null;
    while (!signal.aborted) {
      this.#outdated = new AbortController();
      const outdated = this.#outdated.signal;
      const requests = this.#restoreRequests;
      try {
        await this.#attempt();
        attempted();
        if (!outdated.aborted && requests === this.#restoreRequests) break;
      } catch (error) {
        const reason = toReport(error);
        if (reason.code === "SCHEMA_MOVED") {
          refusedTable(reason);
          attempted();
          break;
        }
        const pauseMs = backoff.next();
        if (reason.code === "CONNECTION_REJECTED") refused(reason);
        if (logged !== reason.message) {
          logged = reason.message;
          const line = { code: reason.code, reason: reason.message, pauseMs };
          log.warn(line, "changed parameters not applied yet, retrying");
        }
        attempted();
        await sleep(pauseMs, AbortSignal.any([signal, outdated]));
      }
    }
    this.#running = false;
  }

  async #attempt(): Promise<void> {
    const { table, log, accepted, homeDoubted, settingsRead, tableLocated } = this.#options;
    const entry = this.#options.entry();
    const client = await connectManager(entry);
    accepted();
    try {
      if (!tableLocated(await locateTable(client, entry, logInvalidSettings(log)))) return;
      settingsRead(await readSettings(client, entry, log));
      await ensureTable(client, table, entry, log);
      homeDoubted();
      await logUnknownZones(client, table, entry.parameters["pg_task.zone"], log);
    } finally {
      await client.end().catch(() => {});
    }
  }
}
