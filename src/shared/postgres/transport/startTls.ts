import { once } from "node:events";
import { type Socket, isIP } from "node:net";
import {
  connect as upgradeToTls,
  type TLSSocket,
  checkServerIdentity,
  type ConnectionOptions,
  type PeerCertificate,
} from "node:tls";
import { isError, systemErrorCode } from "../../errors.js";
import { TlsProblem, ConnectionProblem } from "../errors.js";
import type { SocketAddress, SocketOptions, TlsSettings } from "./socketOptions.js";
import { readFile, stat } from "node:fs/promises";
import { explainSystemError } from "../../systemErrors.js";

export async function startTls(
  socket: Socket,
  address: SocketAddress,
  { tls, signal }: SocketOptions,
): Promise<TLSSocket> {
  const secured = upgradeToTls({
    socket,
    ...(await tlsOptions(tls, address)),
    ...(tls.direct ? { ALPNProtocols: ["postgresql"] } : {}),
  });
  secured.on("error", () => {});
  try {
    await once(secured, "secureConnect", { signal });
  } catch (error) {
    secured.destroy();
    if (signal.aborted || error instanceof TlsProblem) throw error;
    throw new TlsProblem(`SSL error: ${tlsReason(error)}`, { cause: error });
  }
  if (tls.direct && secured.alpnProtocol !== "postgresql") {
    secured.destroy();
    throw new TlsProblem("direct SSL connection was established without ALPN protocol negotiation extension");
  }
  return secured;
}

/** Node has an error code for each defect of a certificate, but libpq has one message for all of them. */
function tlsReason(error: unknown): string {
  if (!isError(error)) return String(error);
  const code = systemErrorCode(error);
  const handshake = code === "" || /^(ERR_|E[A-Z]+$)/.test(code);
  return handshake ? error.message.trim() : `certificate verify failed: ${error.message}`;
}

/** Reads the certificate files, and returns Node's TLS options. */
async function tlsOptions(settings: TlsSettings, { host, address }: SocketAddress): Promise<ConnectionOptions> {
  const { mode, roots, crl, certificate, keyPassword, minVersion, maxVersion } = settings;
  const verifies = mode === "verify-ca" || mode === "verify-full";
  const name = host === "" ? (address ?? "") : host;
  return {
    rejectUnauthorized: verifies,
    minVersion,
    ...(maxVersion === null ? {} : { maxVersion }),
    ...(settings.sni && isIP(name) === 0 ? { servername: name } : {}),
    checkServerIdentity: (_, presented) => (mode === "verify-full" ? nameMismatch(name, presented) : undefined),
    ...(verifies ? await rootOptions(roots) : {}),
    ...(verifies && crl !== null ? { crl: await read("revocation list", crl) } : {}),
    ...(certificate === null ? {} : { cert: await read("certificate", certificate) }),
    ...(certificate === null ? {} : { key: await readKey(settings) }),
    ...(keyPassword === null ? {} : { passphrase: keyPassword }),
  };
}

function nameMismatch(name: string, presented: PeerCertificate): Error | undefined {
  if (checkServerIdentity(name, presented) === undefined) return undefined;
  const owner = [presented.subject.CN].flat().join(", ");
  return new TlsProblem(`server certificate for "${owner}" does not match host name "${name}"`);
}

async function rootOptions(roots: TlsSettings["roots"]): Promise<ConnectionOptions> {
  const file = roots ?? process.env["SSL_CERT_FILE"];
  return file ? { ca: await read("root certificate", file) } : {};
}

async function readKey({ key, keyMustBePrivate }: TlsSettings): Promise<Buffer> {
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

async function read(kind: string, path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    throw new ConnectionProblem(`could not read ${kind} file "${path}": ${explainSystemError(error)}`);
  }
}
