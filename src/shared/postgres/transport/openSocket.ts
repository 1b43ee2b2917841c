import { once } from "node:events";
import { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { ConnectionProblem, TlsProblem } from "../errors.js";
import type { SocketAddress, SocketOptions } from "./socketOptions.js";
import type { Encryption } from "./sslMode.js";

/** How long one of pg-task's own connections must be idle before TCP keepalive probes it, in ms. */
export const keepAliveMs = 5_000;

const sslRequest = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);

/** Opens a connection, with TLS if the options ask for it. Sends no startup packet. */
export async function openSocket(target: SocketAddress, options: SocketOptions): Promise<Socket | TLSSocket> {
  const { signal, encryption, tls } = options;
  const socket = new Socket();
  // Without a listener, an error would end the process. The error is reported by the next operation that is awaited.
  socket.on("error", () => {});
  try {
    socket.setNoDelay(true);
    const { address, host, port } = target;
    if (address === null) socket.connect(socketPath(host, port));
    else socket.connect(port, address);
    await once(socket, "connect", { signal });
    if (options.keepAliveMs !== null && address !== null) {
      socket.setKeepAlive(true, options.keepAliveMs);
    }
    if (address === null || encryption === "none") return socket;
    if (!tls.direct && !(await offersTls(socket, encryption, signal))) return socket;
    // This module is loaded on demand because most connections need no TLS.
    const { startTls } = await import("./startTls.js");
    return await startTls(socket, target, options);
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

export function socketPath(directory: string, port: number): string {
  const path = `${directory}/.s.PGSQL.${port}`;
  return path.startsWith("@") ? `\0${path.slice(1)}` : path;
}

/** Sends an SSLRequest, and returns whether the server offers TLS. */
async function offersTls(socket: Socket, encryption: Encryption, signal: AbortSignal): Promise<boolean> {
  socket.write(sslRequest);
  const closed = new AbortController();
  const onClose = (): void => closed.abort();
  socket.once("close", onClose);
  const [answer]: Buffer[] = await once(socket, "data", {
    signal: AbortSignal.any([signal, closed.signal]),
  }).catch((error: unknown) => {
    throw closed.signal.aborted ? closedUnexpectedly() : error;
  });
  socket.off("close", onClose);
  const letter = answer?.toString("latin1") ?? "";
  if (letter === "S") return true;
  if (letter === "N" && encryption === "ifOffered") return false;
  if (letter === "N") {
    throw new TlsProblem("server does not support SSL, but SSL was required");
  }
  if (letter.startsWith("S")) throw new TlsProblem("received unencrypted data after SSL response");
  if (letter.startsWith("E")) {
    throw new TlsProblem("server sent an error response during SSL exchange");
  }
  throw new ConnectionProblem(`received invalid response to SSL negotiation: ${JSON.stringify(letter.charAt(0))}`);
}

export function closedUnexpectedly(): ConnectionProblem {
  return new ConnectionProblem("server closed the connection unexpectedly");
}
