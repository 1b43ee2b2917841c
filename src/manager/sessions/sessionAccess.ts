import { PgTaskError, toReport, type ErrorReport } from "../../shared/errors.js";
import type { FromManager } from "../../shared/ipc/managerMessages.js";
import type { Log } from "../../shared/log.js";
import { disconnect, type Client } from "../../shared/postgres/client.js";

interface SessionAccessOptions {
  readonly send: (message: Extract<FromManager, { type: "sessionsRefused" }>) => void;
  readonly openSessions: () => number;
  /** Connects as a session does. */
  readonly connect: () => Promise<Client>;
  /** Minimum time between two checks, in ms. */
  readonly pauseMs: () => number;
  /** Called after each refused login. From then on, `pauseMs` says when the next check is due. */
  readonly onRefusal: () => void;
  readonly log: Log;
}

/**
 * Tells the supervisor if the server refuses new sessions while none is open, and when it accepts them again.
 *
 * In deep sleep, it finds this out by connecting and disconnecting. Otherwise, a changed password would be noticed only
 * when the next task is due, because the manager's own connection stays open. A manager in deep sleep checks its table
 * from time to time (every five minutes), and the login with it. While the server refuses the login, it is checked
 * every `pg_work.restart`.
 */
export class SessionAccess {
  readonly #options: SessionAccessOptions;
  /** Whether the supervisor was told that sessions are refused. */
  #isRefused = false;
  #checkedAt = -Infinity;
  #isChecking = false;
  /** Why the last login failed; null if it succeeded. */
  #failure: string | null = null;

  constructor(options: SessionAccessOptions) {
    this.#options = options;
  }

  /** The server has refused a session, or a connection that logs in as a session does. */
  refused(reason: ErrorReport): void {
    if (this.#isRefused || this.#options.openSessions() > 0) return;
    this.#isRefused = true;
    this.#options.send({ type: "sessionsRefused", reason });
  }

  /** The server has accepted a session, or a connection that logs in as a session does. */
  accepted(): void {
    if (this.#isRefused) this.#options.send({ type: "sessionsRefused", reason: null });
    this.#isRefused = false;
  }

  /** Time until the next check, in ms. Infinity if the next check of the table is soon enough. */
  get pauseMs(): number {
    if (this.#failure === null || this.#isChecking) return Infinity;
    return Math.max(0, this.#checkedAt + this.#options.pauseMs() - performance.now());
  }

  /** Begins a check, unless there has just been one. Does not wait for it, so the manager's cycles are not delayed. */
  check(): void {
    if (this.#isChecking || performance.now() - this.#checkedAt < this.#options.pauseMs()) return;
    this.#isChecking = true;
    void this.#logIn();
  }

  async #logIn(): Promise<void> {
    let failure: unknown = null;
    try {
      await disconnect(await this.#options.connect());
    } catch (error) {
      failure = error;
    }
    this.#checkedAt = performance.now();
    this.#isChecking = false;
    if (failure !== null) this.#failed(failure);
    else {
      if (this.#failure !== null) this.#options.log.info("the server accepts new sessions again");
      this.#failure = null;
      this.accepted();
    }
  }

  #failed(error: unknown): void {
    const { log, onRefusal } = this.#options;
    const reason = toReport(error);
    // If the server cannot be reached, the manager's own connection is lost too, and the manager reports this.
    if (!(error instanceof PgTaskError) || error.code !== "CONNECTION_REJECTED") {
      log.debug({ reason: reason.message }, "login check failed");
      return;
    }
    if (this.#failure !== reason.message) {
      log.warn({ code: reason.code, reason: reason.message }, "the server refuses new sessions");
    }
    this.#failure = reason.message;
    this.refused(reason);
    onRefusal();
  }
}
