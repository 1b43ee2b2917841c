import { errorMessage, type ErrorReport } from "../../shared/errors.js";
import type { FromManager } from "../../shared/ipc/managerMessages.js";
import type { Log } from "../../shared/log.js";
import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { refusalOfLogin } from "../../shared/postgres/refusalOfLogin.js";
import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import type { WakeSignal } from "../../shared/wakeSignal.js";

interface SessionAccessComponents {
  readonly send: (message: Extract<FromManager, { type: "sessionsRefused" }>) => void;
  readonly sessions: { readonly size: number };
  readonly target: ConnectionTarget;
  readonly ending: AbortController;
  /** Minimum time between two checks, in ms. */
  readonly restartMs: number;
  /** Notified after each refused login. From then on, `pauseMs` says when the next check is due. */
  readonly wakeSignal: WakeSignal;
  readonly log: Log;
}

/**
 * Tells the supervisor if the server refuses new sessions while none is open, and when it accepts them again.
 *
 * In deep sleep, it finds this out by connecting and disconnecting, with each check of the table. Otherwise, a changed
 * password would be noticed only when the next task is due, because the manager's own connection stays open. While the
 * server refuses the login, it is checked every `pg_work.restart`.
 */
export class SessionAccess {
  readonly #components: SessionAccessComponents;
  #isRefused = false;
  #checkedAt = -Infinity;
  #isChecking = false;
  #failure: string | null = null;

  constructor(components: SessionAccessComponents) {
    this.#components = components;
  }

  /** The server has refused a session, or a connection that logs in as a session does. */
  refused(reason: ErrorReport): void {
    if (this.#isRefused || this.#components.sessions.size > 0) return;
    this.#isRefused = true;
    this.#components.send({ type: "sessionsRefused", reason });
  }

  get isRefused(): boolean {
    return this.#isRefused || this.#failure !== null;
  }

  accepted(): void {
    if (this.#isRefused) this.#components.send({ type: "sessionsRefused", reason: null });
    this.#isRefused = false;
  }

  /** Time until the next check, in ms. Infinity if the next check of the table is soon enough. */
  get pauseMs(): number {
    if (this.#failure === null || this.#isChecking) return Infinity;
    return Math.max(0, this.#checkedAt + this.#components.restartMs - performance.now());
  }

  /** Begins a check, unless there has just been one. Does not wait for it, so the manager's cycles are not delayed. */
  check(): void {
    if (this.#isChecking || performance.now() - this.#checkedAt < this.#components.restartMs) return;
    this.#isChecking = true;
    void this.#logIn();
  }

  async #logIn(): Promise<void> {
    const { ending, log, target } = this.#components;
    const { managerLogin: applicationName } = applicationNames;
    let reason: ErrorReport | null = null;
    try {
      reason = await refusalOfLogin(target, applicationName, ending.signal);
    } catch (error) {
      // The manager's own connection is lost too, and the manager reports this.
      log.debug({ reason: errorMessage(error) }, "login check failed");
      return;
    } finally {
      this.#checkedAt = performance.now();
      this.#isChecking = false;
    }
    if (reason !== null) this.#failed(reason);
    else {
      if (this.#failure !== null) log.info("the server accepts new sessions again");
      this.#failure = null;
      this.accepted();
    }
  }

  #failed(reason: ErrorReport): void {
    const { log, wakeSignal } = this.#components;
    if (this.#failure !== reason.message) {
      log.warn({ code: reason.code, reason: reason.message }, "the server refuses new sessions");
    }
    this.#failure = reason.message;
    this.refused(reason);
    wakeSignal.notify();
  }
}
