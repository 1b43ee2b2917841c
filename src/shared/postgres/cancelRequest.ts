import { once } from "node:events";
import type { BackendKey } from "./auth/login.js";
import type { SocketAddress, SocketOptions } from "./transport/socketOptions.js";
import { openSocket } from "./transport/openSocket.js";
import { timeoutSignal } from "../timeoutSignal.js";

const cancelCode = 80_877_102;

const limitMs = 5_000;

/**
 * Asks a server to cancel what a backend is executing, over a new connection with the same encryption. The backend's
 * secret key is in the request, so no later backend with the same pid is hit. Returns whether the server has received
 * it.
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
