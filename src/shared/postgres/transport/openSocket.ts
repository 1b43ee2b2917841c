import { once } from "node:events";
import { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { ConnectionProblem, TlsProblem } from "../errors.js";
import type { Encryption, Security } from "./tlsSettings.js";

/** Where exactly to connect. */
export interface SocketAddress {
  /** What the user called it; a certificate is made out to it. */
  readonly host: string;
  /** An IP address, null for a socket in the folder `host`. */
  readonly address: string | null;
  readonly port: number;
}

export interface StreamOptions {
  readonly security: Security;
  readonly encryption: Encryption;
  readonly keepAliveMs: number | null;
  /** Ends the attempt. */
  readonly signal: AbortSignal;
}

const sslRequest = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);

/**
 * Opens a connection over which nothing of PostgreSQL's protocol has been said yet, but what TLS needs.
 *
 * @throws TlsProblem, ConnectionProblem, what the system says of a connection that fails, and an
 * AbortError
 */
export async function openSocket(
  place: SocketAddress,
  options: StreamOptions,
): Promise<Socket | TLSSocket> {
  const { signal, keepAliveMs, encryption, security } = options;
  const socket = new Socket();
  // What fails while nobody waits shows when somebody does.
  socket.on("error", () => {});
  try {
    socket.setNoDelay(true);
    const { address, host, port } = place;
    if (address === null) socket.connect(socketPath(host, port));
    else socket.connect(port, address);
    await once(socket, "connect", { signal });
    if (keepAliveMs !== null && address !== null) socket.setKeepAlive(true, keepAliveMs);
    if (address === null || encryption === "none") return socket;
    if (!security.direct && !(await offersTls(socket, encryption, signal))) return socket;
    const { startTls } = await import("./startTls.js");
    return await startTls(socket, place, options);
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

export function socketPath(folder: string, port: number): string {
  const path = `${folder}/.s.PGSQL.${port}`;
  return path.startsWith("@") ? `\0${path.slice(1)}` : path;
}

async function offersTls(
  socket: Socket,
  encryption: Encryption,
  signal: AbortSignal,
): Promise<boolean> {
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
  throw new ConnectionProblem(
    `received invalid response to SSL negotiation: ${JSON.stringify(letter.charAt(0))}`,
  );
}

export function closedUnexpectedly(): ConnectionProblem {
  return new ConnectionProblem("server closed the connection unexpectedly");
}
