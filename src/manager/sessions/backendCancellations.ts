import { sqlState, type Client } from "../../shared/postgres/client.js";
import type { CancellationRequest } from "./session.js";
import { cancelBackend } from "./cancelBackend.sql.js";

/** Cancels server processes over the manager's connection; what comes while there is none waits. */
export class BackendCancellations {
  readonly #waiting = new Map<number, CancellationRequest>();
  #client: Client | null = null;
  #done: (cancellation: CancellationRequest) => void = () => {};

  add(cancellation: CancellationRequest): void {
    this.#waiting.set(cancellation.session, cancellation);
    if (this.#client !== null) void this.#cancel(this.#client, cancellation);
  }

  attach(client: Client, done: (cancellation: CancellationRequest) => void): void {
    this.#client = client;
    this.#done = done;
    for (const cancellation of this.#waiting.values()) void this.#cancel(client, cancellation);
  }

  detach(): void {
    this.#client = null;
  }

  /** Done as well when the server refuses: its process is another's by then, or gone. */
  async #cancel(client: Client, cancellation: CancellationRequest): Promise<void> {
    try {
      await cancelBackend(client, cancellation.pid);
    } catch (error) {
      // Not refused but cut off: the next connection tries again.
      if (sqlState(error) === null) return;
    }
    this.#waiting.delete(cancellation.session);
    this.#done(cancellation);
  }
}
