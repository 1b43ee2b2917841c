import { Backoff, sleep } from "../../shared/backoff.js";
import { logInvalidSettings } from "../../shared/config/serverSettings.js";
import { toReport, type ErrorReport } from "../../shared/errors.js";
import { readSettings, type ManagerSettings } from "../model/settings.js";
import { ensureTable } from "../schema/ensureTable.js";
import { locateTable } from "../schema/locateTable.js";
import { logUnknownZones } from "../schema/unknownZones.js";
import type { ManagerComponents } from "./components.js";
import { connectManager } from "./connectManager.js";

type Components = Pick<
  ManagerComponents,
  "table" | "entry" | "isTableAt" | "sessionAccess" | "ending" | "send" | "log"
>;

interface ReloadedConnection {
  applySettings(settings: ManagerSettings): void;
  /** Called when the parameters by which a copy is told may have changed. */
  doubtHome(): void;
  /** Called if the table must not be served any longer: it was moved. */
  leave(reason: ErrorReport): void;
  /** Nothing is to be applied any more. */
  reloaded(): void;
}

/**
 * Applies changed parameters and recreates dropped objects while the manager works, on a short-lived connection of its
 * own: settings of ALTER DATABASE and ALTER ROLE apply only to new sessions, and changing column defaults must not block
 * the manager's cycles. If the table is locked, it retries at growing intervals, and producers can continue in between.
 *
 *     idle ──restart, restore──▶ attempt ──succeeded, nothing new requested──▶ idle
 *                                 ▲   │
 *                                 │   └─failed─▶ waiting
 *                                 └──restart, or the wait is over──┘
 */
export class SettingsReloader {
  readonly #components: Components;
  readonly #connection: ReloadedConnection;
  /** Aborted when new parameters arrive that the current attempt does not use. */
  #outdated = new AbortController();
  /** How many times `restore` was called. */
  #restoreRequests = 0;
  #running = false;

  constructor(components: Components, connection: ReloadedConnection) {
    this.#components = components;
    this.#connection = connection;
  }

  get isRunning(): boolean {
    return this.#running;
  }

  /** Applies changed parameters. If the last attempt failed, the next one starts at once. */
  restart(): void {
    this.#outdated.abort();
    this.#begin();
  }

  /** Recreates missing objects, after the current attempt if there is one. The delay after a failed one stays. */
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
    const { ending, entry, log, send, sessionAccess } = this.#components;
    const backoff = new Backoff({ firstMs: 500, maxMs: entry.parameters["pg_conf.restart"] * 1000 });
    let logged: string | null = null;
    while (!ending.signal.aborted) {
      this.#outdated = new AbortController();
      const outdated = this.#outdated.signal;
      const requests = this.#restoreRequests;
      const error = await this.#attempt().catch((reason: unknown) => reason);
      const reason = error === undefined ? null : toReport(error);
      if (reason?.code === "SCHEMA_MOVED") this.#connection.leave(reason);
      if (reason?.code === "CONNECTION_REJECTED") sessionAccess.refused(reason);
      send({ type: "reconfigured" });
      if (reason?.code === "SCHEMA_MOVED") break;
      if (reason === null) {
        if (!outdated.aborted && requests === this.#restoreRequests) break;
        continue;
      }
      const pauseMs = backoff.next();
      if (logged !== reason.message) {
        logged = reason.message;
        const line = { code: reason.code, reason: reason.message, pauseMs };
        log.warn(line, "changed parameters not applied yet, retrying");
      }
      await sleep(pauseMs, AbortSignal.any([ending.signal, outdated]));
    }
    this.#running = false;
    this.#connection.reloaded();
  }

  async #attempt(): Promise<void> {
    const { entry, log, sessionAccess, table } = this.#components;
    const client = await connectManager(entry);
    sessionAccess.accepted();
    try {
      if (!this.#components.isTableAt(await locateTable(client, entry, logInvalidSettings(log)))) return;
      this.#connection.applySettings(await readSettings(client, entry, log));
      await ensureTable(client, table, entry, log);
      this.#connection.doubtHome();
      await logUnknownZones(client, table, entry.parameters["pg_task.zone"], log);
    } finally {
      await client.end().catch(() => {});
    }
  }
}
