import type { Duplex } from "node:stream";
import type { Credentials } from "./auth/credentials.js";
import { login, type BackendKey } from "./auth/login.js";
import { ConnectionProblem } from "./errors.js";
import { tlsSettings, type ConnectionTarget } from "./target/target.js";
import { keepAliveMs, openSocket } from "./transport/openSocket.js";
import type { SocketAddress } from "./transport/socketOptions.js";
import { encryptionAttempts, type Encryption } from "./transport/sslMode.js";

/** A connection that is logged in and ready for queries. */
export interface OpenStream {
  readonly stream: Duplex;
  readonly key: BackendKey;
}

interface Attempt extends Pick<Credentials, "applicationName" | "startup" | "passwordRequired"> {
  readonly address: SocketAddress;
  readonly encryption: Encryption;
  /** Aborts the attempt, which then fails with any error. */
  readonly signal: AbortSignal | undefined;
}

/** The message of the error of an attempt that has taken longer than the target's time limit. */
export const timeoutExpired = "timeout expired";

/** Returns the ways to encrypt connections to an address, in order. Unix-domain sockets are not encrypted. */
export const encryptionsAt = (
  sslmode: ConnectionTarget["sslmode"],
  { address }: SocketAddress,
): readonly Encryption[] => encryptionAttempts[address === null ? "disable" : sslmode];

/**
 * Connects to one address of a server, logs in, and calls `use`, all within the target's time limit. If this fails, the
 * connection is closed.
 *
 * @throws the errors of `openSocket`, `login` and `use`
 */
export async function openAddress<T>(
  target: ConnectionTarget,
  { address, encryption, signal, ...identity }: Attempt,
  use: (opened: OpenStream, signal: AbortSignal) => T | Promise<T>,
): Promise<T> {
  const { connectTimeoutMs, user, database, password = null, channelBinding = "prefer", authMethods = null } = target;
  const timeout = new AbortController();
  const timer = connectTimeoutMs > 0 ? setTimeout(() => timeout.abort(), connectTimeoutMs) : undefined;
  const limited = signal === undefined ? timeout.signal : AbortSignal.any([timeout.signal, signal]);
  let stream: Duplex | null = null;
  const destroy = (): void => void stream?.destroy();
  limited.addEventListener("abort", destroy, { once: true });
  try {
    stream = await openSocket(address, {
      tls: tlsSettings(target),
      encryption,
      keepAliveMs: target.keepAliveMs === undefined ? keepAliveMs : target.keepAliveMs,
      signal: limited,
    });
    const credentials = { ...identity, user, database, password, channelBinding, authMethods };
    const key = await login(stream, credentials, limited);
    return await use({ stream, key }, limited);
  } catch (error) {
    destroy();
    throw timeout.signal.aborted ? new ConnectionProblem(timeoutExpired) : error;
  } finally {
    clearTimeout(timer);
    limited.removeEventListener("abort", destroy);
  }
}
