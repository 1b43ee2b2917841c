import { once } from "node:events";
import type { BackendKey } from "./auth/login.js";
import { openSocket, type SocketAddress, type StreamOptions } from "./transport/openSocket.js";

const cancelCode = 80_877_102;

/** How long a cancel may take to reach its server, in ms. */
const limitMs = 5_000;

/**
 * Asks a server to cancel what one of its processes runs, over a connection of its own that is
 * secured like the run's. It names the process by a secret that no later process has, so it can hit
 * nothing else.
 *
 * @returns whether the server has got it.
 */
export async function cancelRemote(
  place: SocketAddress,
  key: BackendKey,
  options: Omit<StreamOptions, "signal">,
): Promise<boolean> {
  const signal = AbortSignal.timeout(limitMs);
  try {
    const stream = await openSocket(place, { ...options, signal });
    try {
      const closed = once(stream, "close", { signal });
      stream.resume();
      stream.write(cancelRequest(key));
      // The server closes when it has sent the signal.
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
