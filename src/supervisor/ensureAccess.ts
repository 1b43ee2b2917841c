import { Backoff } from "../shared/backoff.js";
import type { Entry } from "../shared/config/types.js";
import { toReport, type ErrorReport } from "../shared/errors.js";
import type { Log } from "../shared/log.js";
import type { RolesAndDatabases } from "./rolesAndDatabases.js";

/**
 * SQLSTATEs that indicate a missing database or role. If the server asks for a password, it reports a missing role as a
 * failed authentication.
 */
const missingRoleOrDatabase = new Set(["3D000", "28000", "28P01"]);

interface EnsureAccessOptions {
  readonly rolesAndDatabases: Pick<RolesAndDatabases, "ensure">;
  readonly entry: () => Entry;
  readonly signal: AbortSignal;
  readonly unavailable: (reason: ErrorReport) => void;
  /** Waits, unless it is to be tried at once. */
  readonly pause: (ms: number) => Promise<void>;
  readonly log: Log;
}

/** Sees to it that the role and the database of one manager exist. */
export class EnsureAccess {
  readonly #options: EnsureAccessOptions;
  readonly #backoff: Backoff;
  #isRecreating = false;
  #lastLogged: string | null = null;

  constructor(options: EnsureAccessOptions, maxMs: number) {
    this.#options = options;
    this.#backoff = new Backoff({ firstMs: 100, maxMs });
  }

  /** The entry has changed. */
  reset(maxMs: number): void {
    this.#backoff.limit(maxMs);
    this.#backoff.reset();
  }

  /** Retries until the role and the database exist. Returns false if the manager was stopped before that. */
  async ensure(): Promise<boolean> {
    const { entry, pause, rolesAndDatabases, signal, unavailable } = this.#options;
    while (!signal.aborted) {
      try {
        await rolesAndDatabases.ensure(entry(), { isStart: true });
        this.#backoff.reset();
        this.#lastLogged = null;
        return !signal.aborted;
      } catch (error) {
        const pauseMs = this.#backoff.next();
        this.#logUnavailable(error, { pauseMs });
        unavailable(toReport(error));
        await pause(pauseMs);
      }
    }
    return false;
  }

  /**
   * Creates a role or database that was dropped, if that is why the manager is unavailable. In the meantime, the manager
   * itself keeps trying to connect.
   */
  async recreate({ sqlState }: ErrorReport): Promise<void> {
    if (this.#isRecreating || !missingRoleOrDatabase.has(sqlState ?? "")) return;
    this.#isRecreating = true;
    try {
      await this.#options.rolesAndDatabases.ensure(this.#options.entry(), { isStart: false });
      this.#lastLogged = null;
    } catch (error) {
      // It is tried again when the manager has failed to connect once more, which depends on the manager's own pauses.
      this.#logUnavailable(error);
    }
    this.#isRecreating = false;
  }

  /** Logs each reason only once rather than at every attempt. */
  #logUnavailable(error: unknown, pause: { readonly pauseMs?: number } = {}): void {
    const { entry, log, signal } = this.#options;
    const { code, message } = toReport(error);
    if (this.#lastLogged === message || signal.aborted) return;
    this.#lastLogged = message;
    log.warn({ entry: entry().key, code, reason: message, ...pause }, "role or database unavailable, retrying");
  }
}
