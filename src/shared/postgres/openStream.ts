import type { Duplex } from "node:stream";
import { PgTaskError } from "../errors.js";
import { login, LoginRefused, type BackendKey } from "./auth/login.js";
import type { Credentials } from "./auth/credentials.js";
import { missingPasswordError, rejectedError, unreachableError } from "./connectionErrors.js";
import { ConnectionProblem, MissingPassword } from "./errors.js";
import { socketAddress, tlsSettings, type ConnectionTarget } from "./target/target.js";
import { keepAliveMs, openSocket } from "./transport/openSocket.js";
import { encryptionAttempts, type Encryption } from "./transport/sslMode.js";

export interface LoginOptions {
  readonly applicationName: string;
  /** The `options` of the startup packet, which take precedence over those of the target. */
  readonly options: string;
  /** Whether this is the control connection, which has its password from elsewhere than an entry. */
  readonly isControl?: boolean;
  /** Aborts the attempt, which then fails with CONNECTION_FAILED. */
  readonly signal?: AbortSignal;
}

/** A connection that is logged in and ready for queries. */
export interface OpenStream {
  readonly stream: Duplex;
  readonly key: BackendKey;
}

/**
 * Connects to the only server of a target with the encryption that its `sslmode` asks for, and logs in. If the server
 * refuses the first attempt, a second one with TLS can follow. Unlike libpq, pg-task never falls back to plaintext if
 * the server offers TLS.
 *
 * @throws PgTaskError CONNECTION_FAILED if the server cannot be reached; CONNECTION_REJECTED if the server refuses the
 * connection; CONNECTION_POOLED if a pooler refuses it
 */
export async function openStream(server: ConnectionTarget, options: LoginOptions): Promise<OpenStream> {
  const { host, sslmode } = server;
  // Unix-domain sockets are not encrypted.
  const [first = "none", second] = encryptionAttempts[host.startsWith("/") ? "disable" : sslmode];
  try {
    return await tryOnce(server, options, first);
  } catch (error) {
    const isRejected = error instanceof PgTaskError && error.code === "CONNECTION_REJECTED";
    if (!isRejected || second === undefined || second === "none") throw error;
    return await tryOnce(server, options, second);
  }
}

async function tryOnce(server: ConnectionTarget, options: LoginOptions, encryption: Encryption): Promise<OpenStream> {
  const { connectTimeoutMs } = server;
  const timeout = new AbortController();
  const timer = connectTimeoutMs > 0 ? setTimeout(() => timeout.abort(), connectTimeoutMs) : undefined;
  const signal = options.signal === undefined ? timeout.signal : AbortSignal.any([timeout.signal, options.signal]);
  try {
    return await open(server, options, encryption, signal);
  } catch (error) {
    const cause = timeout.signal.aborted ? new ConnectionProblem("timeout expired") : error;
    if (cause instanceof LoginRefused) throw rejectedError(server, cause.error, cause);
    if (cause instanceof MissingPassword) throw missingPasswordError(server, cause, options.isControl);
    throw unreachableError(server, cause);
  } finally {
    clearTimeout(timer);
  }
}

async function open(
  server: ConnectionTarget,
  { applicationName, options }: LoginOptions,
  encryption: Encryption,
  signal: AbortSignal,
): Promise<OpenStream> {
  const { user, database, password = null, channelBinding = "prefer", authMethods = null } = server;
  const stream = await openSocket(socketAddress(server), {
    tls: tlsSettings(server),
    encryption,
    keepAliveMs: server.keepAliveMs === undefined ? keepAliveMs : server.keepAliveMs,
    signal,
  });
  const destroy = (): void => void stream.destroy();
  signal.addEventListener("abort", destroy, { once: true });
  try {
    const all = [server.options, options].filter(Boolean).join(" ");
    const startup: Credentials["startup"] = all === "" ? {} : { options: all };
    const credentials = { user, database, password, applicationName, startup, channelBinding, authMethods };
    return { stream, key: await login(stream, { ...credentials, passwordRequired: false }, signal) };
  } catch (error) {
    stream.destroy();
    throw error;
  } finally {
    signal.removeEventListener("abort", destroy);
  }
}
