import { once } from "node:events";
import { readFile, stat } from "node:fs/promises";
import { isIP, type Socket } from "node:net";
import {
  checkServerIdentity,
  connect as upgradeToTls,
  type ConnectionOptions,
  type PeerCertificate,
  type TLSSocket,
} from "node:tls";
import type { Security } from "./tlsSettings.js";
import { ConnectionProblem, TlsProblem } from "../errors.js";
import type { SocketAddress, StreamOptions } from "./openSocket.js";

/**
 * Begins TLS on a connection whose server has agreed to it.
 *
 * @throws TlsProblem, ConnectionProblem, and an AbortError
 */
export async function startTls(
  socket: Socket,
  place: SocketAddress,
  options: StreamOptions,
): Promise<TLSSocket> {
  const { security, signal } = options;
  const secured = upgradeToTls({
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
  { host, address }: SocketAddress,
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
