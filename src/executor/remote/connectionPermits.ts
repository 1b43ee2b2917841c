import type { FromExecutor } from "../../shared/ipc/executorMessages.js";

/** The manager's server has no capacity for another connection, so the task has to wait. */
export class ServerFull extends Error {}

/**
 * Ends the reservation for a connection. Must be called with true when the connection is open, or with false when it
 * has failed to open.
 */
export type EndReservation = (opened: boolean) => void;

type PermitMessage = Extract<FromExecutor, { type: "requestConnectionPermit" | "connectionPermitUsed" }>;

/**
 * Asks the manager for permits to open connections to the manager's server. Each executor thread has one instance. The
 * state of one request:
 *
 *     requested ──granted──▶ reserved ──connection open or failed──▶ over
 *      │     │                                                        ▲
 *      │     └──refused: ServerFull───────────────────────────────────┤
 *      └──aborted──▶ unwanted ──granted: returned unused, or refused──┘
 */
export class ConnectionPermits {
  /**
   * For each address that was connected to, whether the manager's server was found there. Maintained by
   * `ManagerServer`.
   */
  readonly isManagerServer = new Map<string, boolean>();
  readonly #send: (message: PermitMessage) => void;
  readonly #pending = new Map<number, (granted: boolean) => void>();
  #requestCount = 0;

  constructor(send: (message: PermitMessage) => void) {
    this.#send = send;
  }

  /**
   * Asks the manager to reserve capacity for one connection.
   *
   * @throws ServerFull if the manager's server has no capacity for the connection
   * @throws the signal's reason
   */
  async request(signal: AbortSignal): Promise<EndReservation> {
    signal.throwIfAborted();
    const number = (this.#requestCount += 1);
    const answer = new Promise<boolean>((resolve, reject) => {
      const onAbort = (): void => {
        this.#pending.delete(number);
        reject(signal.reason);
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.#pending.set(number, (granted) => {
        signal.removeEventListener("abort", onAbort);
        resolve(granted);
      });
    });
    this.#send({ type: "requestConnectionPermit", number });
    if (!(await answer)) throw new ServerFull();
    return (opened) => this.#send({ type: "connectionPermitUsed", number, opened });
  }

  /**
   * Passes on the manager's answer. If the request was aborted in the meantime, a granted permit is returned unused.
   */
  answer(number: number, granted: boolean): void {
    const resolve = this.#pending.get(number);
    this.#pending.delete(number);
    if (resolve !== undefined) resolve(granted);
    else if (granted) this.#send({ type: "connectionPermitUsed", number, opened: false });
  }
}
