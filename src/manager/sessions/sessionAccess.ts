import type { ErrorReport } from "../../shared/errors.js";
import type { FromManager } from "../../shared/ipc/managerMessages.js";

/** Tells the supervisor if the server refuses new sessions while none is open, and when it accepts them again. */
export class SessionAccess {
  readonly #send: (message: Extract<FromManager, { type: "sessionsRefused" }>) => void;
  readonly #openSessions: () => number;
  #isRefused = false;

  constructor(options: {
    readonly send: (message: Extract<FromManager, { type: "sessionsRefused" }>) => void;
    readonly openSessions: () => number;
  }) {
    this.#send = options.send;
    this.#openSessions = options.openSessions;
  }

  /** The server has refused a session, or a connection that logs in as a session does. */
  refused(reason: ErrorReport): void {
    if (this.#isRefused || this.#openSessions() > 0) return;
    this.#isRefused = true;
    this.#send({ type: "sessionsRefused", reason });
  }

  /** The server has accepted a session, or a connection that logs in as a session does. */
  accepted(): void {
    if (this.#isRefused) this.#send({ type: "sessionsRefused", reason: null });
    this.#isRefused = false;
  }
}
