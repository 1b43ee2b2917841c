import { once } from "node:events";
import type { BackendKey } from "./auth/login.js";
import type { SocketAddress, SocketOptions } from "./transport/socketOptions.js";
import { openSocket } from "./transport/openSocket.js";
import { timeoutSignal } from "../timeoutSignal.js";

const cancelCode = 80_877_102;

/** Time limit for the whole exchange, in ms. */
const limitMs = 5_000;

/**
 * Asks a server to cancel the statement that a backend is executing. The request is sent over a new connection with the
 * same encryption as the backend's connection. It contains the backend's secret key, so a later backend with the same
 * pid is not affected.
 *
 * @returns whether the server has received the request
 */
export async function sendCancelRequest(
  address: SocketAddress,
  key: BackendKey,
  options: Omit<SocketOptions, "signal">,
): Promise<boolean> {
  const signal = timeoutSignal(limitMs);
  try {
    const stream = await openSocket(address, { ...options, signal });
    try {
      const closed = once(stream, "close", { signal });
      stream.resume();
      stream.write(cancelRequest(key));
      // The server closes the connection once it has sent the signal to the backend.
      await closed;
      return true;
    } finally {
      stream.destroy();
    }
  } catch {
    return false;
  }
}

function cancelRequest({ pid, secret }: BackendKey): Buffer {
  const head = Buffer.alloc(12);
  head.writeInt32BE(head.length + secret.length, 0);
  head.writeInt32BE(cancelCode, 4);
  head.writeInt32BE(pid, 8);
  return Buffer.concat([head, secret]);
}
