import { PgTaskError, toReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import { disconnect, type Client } from "../../shared/postgres/client.js";
import type { SessionAccess } from "./sessionAccess.js";

/**
 * Finds out in deep sleep whether the server still accepts sessions, by connecting and disconnecting. Otherwise, a
 * changed password would be noticed only when the next task is due, because the manager's own connection stays open.
 *
 * A manager in deep sleep checks its table from time to time (every five minutes), and the login with it. While the
 * server refuses the login, it is checked every `pg_work.restart`.
 */
export class LoginCheck {
  readonly #access: SessionAccess;
  readonly #connect: () => Promise<Client>;
  readonly #pauseMs: () => number;
  readonly #onRefusal: () => void;
  readonly #log: Log;
  #checkedAt = -Infinity;
  #isRunning = false;
  /** Why the last login failed; null if it succeeded. */
  #refusal: string | null = null;

  constructor(options: {
    readonly access: SessionAccess;
    /** Connects as a session does. */
    readonly connect: () => Promise<Client>;
    /** Minimum time between two checks, in ms. */
    readonly pauseMs: () => number;
    /** Called after each refusal. From then on, `pauseMs` says when the next check is due. */
    readonly onRefusal: () => void;
    readonly log: Log;
  }) {
    this.#access = options.access;
    this.#connect = options.connect;
    this.#pauseMs = options.pauseMs;
    this.#onRefusal = options.onRefusal;
    this.#log = options.log;
  }

  /** Time until the next check, in ms. Infinity if the next check of the table is soon enough. */
  get pauseMs(): number {
    if (this.#refusal === null || this.#isRunning) return Infinity;
    return Math.max(0, this.#checkedAt + this.#pauseMs() - performance.now());
  }

  /** Begins a check, unless there has just been one. Does not wait for it, so the manager's cycles are not delayed. */
  begin(): void {
    if (this.#isRunning || performance.now() - this.#checkedAt < this.#pauseMs()) return;
    this.#isRunning = true;
    void this.#check();
  }

  async #check(): Promise<void> {
    const error = await this.#logIn();
    this.#checkedAt = performance.now();
    this.#isRunning = false;
    if (error === null) this.#accepted();
    else this.#failed(error);
  }

  async #logIn(): Promise<unknown> {
    try {
      await disconnect(await this.#connect());
      return null;
    } catch (error) {
      return error;
    }
  }

  #accepted(): void {
    if (this.#refusal !== null) this.#log.info("the server accepts new sessions again");
    this.#refusal = null;
    this.#access.accepted();
  }

  #failed(error: unknown): void {
    const reason = toReport(error);
    // If the server cannot be reached, the manager's own connection is lost too, and the manager reports this.
    if (!(error instanceof PgTaskError) || error.code !== "CONNECTION_REJECTED") {
      this.#log.debug({ reason: reason.message }, "login check failed");
      return;
    }
    if (this.#refusal !== reason.message) {
      this.#log.warn({ code: reason.code, reason: reason.message }, "the server refuses new sessions");
    }
    this.#refusal = reason.message;
    this.#access.refused(reason);
    this.#onRefusal();
  }
}
