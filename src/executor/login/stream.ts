import { once } from "node:events";
import { readFile, stat } from "node:fs/promises";
import { isIP, Socket } from "node:net";
import {
  checkServerIdentity,
  connect as startTls,
  type ConnectionOptions,
  type PeerCertificate,
  type TLSSocket,
} from "node:tls";
import { ConnectionProblem } from "./problem.js";
import type { Encryption, Security } from "./encryption.js";

/** Where exactly to connect. */
export interface Place {
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

/** The server's side of TLS could not be agreed upon; without TLS it may do. */
export class TlsProblem extends ConnectionProblem {}

const sslRequest = Buffer.from([0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]);

/**
 * Opens a connection over which nothing of PostgreSQL's protocol has been said yet, but what TLS needs.
 *
 * @throws TlsProblem, ConnectionProblem, what the system says of a connection that fails, and an
 * AbortError
 */
export async function openStream(
  place: Place,
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
    return await secure(socket, place, options);
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

async function secure(socket: Socket, place: Place, options: StreamOptions): Promise<TLSSocket> {
  const { security, signal } = options;
  const secured = startTls({
    socket,
    ...(await tlsOptions(security, place)),
    ...(security.direct ? { ALPNProtocols: ["postgresql"] } : {}),
  });
  secured.on("error", () => {});
  try {
    await once(secured, "secureConnect", { signal });
  } catch (error) {
    secured.destroy();
    if (signal.aborted || error instanceof TlsProblem) throw error;
    throw new TlsProblem(`SSL error: ${tlsReason(error)}`);
  }
  if (security.direct && secured.alpnProtocol !== "postgresql") {
    secured.destroy();
    throw new TlsProblem(
      "direct SSL connection was established without ALPN protocol negotiation extension",
    );
  }
  return secured;
}

async function tlsOptions(
  security: Security,
  { host, address }: Place,
): Promise<ConnectionOptions> {
  const { mode, roots, revoked, certificate, keyPassword, oldest, newest } = security;
  const verifies = mode === "verify-ca" || mode === "verify-full";
  const name = host === "" ? (address ?? "") : host;
  return {
    rejectUnauthorized: verifies,
    minVersion: oldest,
    ...(newest === null ? {} : { maxVersion: newest }),
    ...(security.named && isIP(name) === 0 ? { servername: name } : {}),
    checkServerIdentity: (_, presented) =>
      mode === "verify-full" ? nameProblem(name, presented) : undefined,
    ...(verifies ? await rootOptions(roots) : {}),
    ...(verifies && revoked !== null ? { crl: await read("revocation list", revoked) } : {}),
    ...(certificate === null ? {} : { cert: await read("certificate", certificate) }),
    ...(certificate === null ? {} : { key: await readKey(security) }),
    ...(keyPassword === null ? {} : { passphrase: keyPassword }),
  };
}

function nameProblem(name: string, presented: PeerCertificate): Error | undefined {
  if (checkServerIdentity(name, presented) === undefined) return undefined;
  const owner = [presented.subject.CN].flat().join(", ");
  return new TlsProblem(`server certificate for "${owner}" does not match host name "${name}"`);
}

async function rootOptions(roots: Security["roots"]): Promise<ConnectionOptions> {
  if (roots.kind === "file") return { ca: await read("root certificate", roots.path) };
  const file = process.env["SSL_CERT_FILE"];
  return file === undefined || file === "" ? {} : { ca: await read("root certificate", file) };
}

async function readKey({ key, keyMustBePrivate }: Security): Promise<Buffer> {
  if (key === null) throw new ConnectionProblem("certificate present, but not private key file");
  if (keyMustBePrivate) await expectPrivate(key);
  return await read("private key", key);
}

async function expectPrivate(path: string): Promise<void> {
  if (process.platform === "win32") return;
  const found = await stat(path).catch(() => null);
  const forbidden = found?.uid === 0 ? 0o037 : 0o077;
  if (found === null || (found.mode & forbidden) === 0) return;
  throw new ConnectionProblem(
    `private key file "${path}" has group or world access; file must have permissions u=rw (0600) or less if owned by the current user, or permissions u=rw,g=r (0640) or less if owned by root`,
  );
}

async function read(what: string, path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "unreadable";
    throw new ConnectionProblem(`could not read ${what} file "${path}": ${code}`);
  }
}

/** Certificates' problems have codes of their own, and libpq one word for them all. */
function tlsReason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = "code" in error ? String(error.code) : "";
  const handshake = code === "" || /^(ERR_|E[A-Z]+$)/.test(code);
  return handshake ? error.message.trim() : `certificate verify failed: ${error.message}`;
}
