import type { Duplex } from "node:stream";
import type { Credentials } from "./auth/credentials.js";
import { login, LoginRefused, type BackendKey } from "./auth/login.js";
import { missingPasswordError, rejectedError, unreachableError } from "./connectionErrors.js";
import { ConnectionProblem, MissingPassword } from "./errors.js";
import { socketAddress, tlsSettings, type ConnectionTarget } from "./target/target.js";
import { keepAliveMs, openSocket } from "./transport/openSocket.js";
import type { SocketAddress } from "./transport/socketOptions.js";
import type { Encryption } from "./transport/sslMode.js";

/** A connection that is logged in and ready for queries. */
export interface OpenStream {
  readonly stream: Duplex;
  readonly key: BackendKey;
}

export interface LoginOptions {
  readonly applicationName: string;
  /** The `options` of the startup packet, which take precedence over those of the target. */
  readonly options: string;
  /** Whether this is the control connection, which has its password from elsewhere than an entry. */
  readonly isControl?: boolean;
  /** Aborts the attempt, which then fails with CONNECTION_FAILED. */
  readonly signal?: AbortSignal;
}

/**
 * Connects to the only server of a target and logs in.
 *
 * @throws PgTaskError CONNECTION_FAILED if the server cannot be reached; CONNECTION_REJECTED if the server refuses the
 * connection; CONNECTION_POOLED if a pooler refuses it
 */
export async function openStream(
  server: ConnectionTarget,
  encryption: Encryption,
  { applicationName, options: own, isControl, signal }: LoginOptions,
): Promise<OpenStream> {
  const options = [server.options, own].filter(Boolean).join(" ");
  const startup: Record<string, string> = options === "" ? {} : { options };
  const attempt = {
    address: socketAddress(server),
    encryption,
    signal,
    applicationName,
    startup,
    passwordRequired: false,
  };
  try {
    return await openAddress(server, attempt, (opened) => opened);
  } catch (error) {
    if (error instanceof LoginRefused) throw rejectedError(server, error.error, error);
    if (error instanceof MissingPassword) throw missingPasswordError(server, error, isControl);
    throw unreachableError(server, error);
  }
}

interface Attempt extends Pick<Credentials, "applicationName" | "startup" | "passwordRequired"> {
  readonly address: SocketAddress;
  readonly encryption: Encryption;
  /** Aborts the attempt, which then fails with any error. */
  readonly signal: AbortSignal | undefined;
}

export const timeoutExpired = "timeout expired";

/** Connects to one address, logs in, and calls `use`, all within the target's time limit. */
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
