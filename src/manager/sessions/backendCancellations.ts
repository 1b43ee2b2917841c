import { sqlState, type Client } from "../../shared/postgres/client.js";
import type { CancellationRequest } from "./session.js";

/**
 * Cancels the runs of backends over the manager's connection. While there is no connection, requests are kept for the
 * next one.
 *
 *     add ──▶ pending ──connected──▶ sent ──answered──▶ confirmed
 *                ▲                    │
 *                └──connection lost───┘
 */
export class BackendCancellations {
  readonly #pending = new Map<number, CancellationRequest>();
  #client: Client | null = null;
  #cancelled: (cancellation: CancellationRequest) => void = () => {};

  add(cancellation: CancellationRequest): void {
    this.#pending.set(cancellation.session, cancellation);
    if (this.#client !== null) void this.#cancel(this.#client, cancellation);
  }

  attach(client: Client, cancelled: (cancellation: CancellationRequest) => void): void {
    this.#client = client;
    this.#cancelled = cancelled;
    for (const cancellation of this.#pending.values()) void this.#cancel(client, cancellation);
  }

  detach(): void {
    this.#client = null;
  }

  /** If the server refuses, the backend has ended, and the pid may have been reused. */
  async #cancel(client: Client, cancellation: CancellationRequest): Promise<void> {
    try {
      const text = "SELECT pg_cancel_backend($1)";
      await client.query({ name: "cancel backend", text, values: [cancellation.pid] });
    } catch (error) {
      // The connection was lost. The request is sent again over the next connection.
      if (sqlState(error) === null) return;
    }
    this.#pending.delete(cancellation.session);
    this.#cancelled(cancellation);
  }
}
