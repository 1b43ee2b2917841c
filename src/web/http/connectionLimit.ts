import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/**
 * Limits the number of a server's open connections. A new connection beyond the limit takes the place of the one that has
 * been without a request with a token for the longest time, so that clients who send nothing, or slowly, keep out neither
 * probes nor users. Connections whose requests carry a token may take all places but the reserved ones.
 */
export class ConnectionLimit {
  readonly #limits: { readonly connections: number; readonly reserved: number };
  readonly #onClosed: () => void;
  /** The longest-waiting first. */
  readonly #waiting = new Set<Socket>();
  /** With the number of requests that carry a token. */
  readonly #trusted = new Map<Socket, number>();

  constructor(limits: { readonly connections: number; readonly reserved: number }, onClosed: () => void) {
    this.#limits = limits;
    this.#onClosed = onClosed;
  }

  watch(server: Server): void {
    server.on("connection", (socket) => {
      this.#waiting.add(socket);
      socket.once("close", () => {
        this.#waiting.delete(socket);
        this.#trusted.delete(socket);
      });
      if (this.#waiting.size + this.#trusted.size <= this.#limits.connections) return;
      // There is always one: the new connection, unless an older one waits.
      const [longest] = this.#waiting;
      if (longest !== undefined) this.#close(longest);
    });
  }

  /** Returns false if only the reserved places are left. */
  trust({ socket }: IncomingMessage, response: ServerResponse): boolean {
    const before = this.#trusted.get(socket);
    if (before === undefined) {
      if (this.#trusted.size >= this.#limits.connections - this.#limits.reserved) return false;
      this.#waiting.delete(socket);
    }
    if (socket.destroyed) return true;
    this.#trusted.set(socket, (before ?? 0) + 1);
    response.once("close", () => this.#release(socket));
    return true;
  }

  #release(socket: Socket): void {
    const left = (this.#trusted.get(socket) ?? 0) - 1;
    if (left > 0) {
      this.#trusted.set(socket, left);
      return;
    }
    if (this.#trusted.delete(socket) && !socket.destroyed) this.#waiting.add(socket);
  }

  #close(socket: Socket): void {
    this.#waiting.delete(socket);
    socket.destroy();
    this.#onClosed();
  }
}
