import type { FromExecutor } from "../../shared/ipc/executorMessages.js";

export class ServerFull extends Error {}

/** Ends a reservation: with true when the connection is open, with false when it could not be opened. */
export type EndReservation = (opened: boolean) => void;

type PermitMessage = Extract<FromExecutor, { type: "requestConnectionPermit" | "connectionPermitUsed" }>;

/**
 * Asks the manager for permits to open connections to the manager's server. The state of one request:
 *
 *     requested ──granted──▶ reserved ──connection open or failed──▶ over
 *      │     │                                                        ▲
 *      │     └──refused: ServerFull───────────────────────────────────┤
 *      └──aborted──▶ unwanted ──granted: returned unused, or refused──┘
 */
export class ConnectionPermits {
  /** For each address that was connected to, whether the manager's server is there. Maintained by `ManagerServer`. */
  readonly isManagerServer = new Map<string, boolean>();
  readonly #send: (message: PermitMessage) => void;
  readonly #pending = new Map<number, (granted: boolean) => void>();
  #requestCount = 0;

  constructor(send: (message: PermitMessage) => void) {
    this.#send = send;
  }

  /**
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

  /** If the request was aborted in the meantime, a granted permit is returned unused. */
  answer(number: number, granted: boolean): void {
    const resolve = this.#pending.get(number);
    this.#pending.delete(number);
    if (resolve !== undefined) resolve(granted);
    else if (granted) this.#send({ type: "connectionPermitUsed", number, opened: false });
  }
}
