import { unreachableError, rejectedError, missingPasswordError } from "./connectionErrors.js";
import type { PgTaskError } from "../errors.js";
import { connectWithFallback } from "./encryptionFallback.js";
import type { Startup } from "./startupOptions.js";
import { socketAddress, tlsSettings, type ConnectionTarget } from "./target/target.js";
import type { Encryption } from "./transport/sslMode.js";
import { keepAliveMs, openSocket } from "./transport/openSocket.js";
import { connectToFirst } from "./target/connectToFirst.js";
import { login, LoginRefused } from "./auth/login.js";
import { ConnectionProblem, MissingPassword } from "./errors.js";
import { ProtocolConnection } from "./protocol/connection.js";

export interface ConnectOptions {
  readonly applicationName: string;
  readonly startup: Startup;
  /** Returns the size in bytes of the largest message that is kept whole. Called for each message. */
  readonly messageLimit: () => number;
}

/**
 * Logs in to a server that the configuration names. Unlike `connectClient`, does not use the pg driver, which would
 * double the amount of code that an executor thread loads.
 *
 * @throws PgTaskError CONNECTION_FAILED if the server cannot be reached; CONNECTION_REJECTED if the server refuses the
 * connection; CONNECTION_POOLED if a pooler refuses it
 */
export async function openProtocolConnection(
  target: ConnectionTarget,
  options: ConnectOptions,
): Promise<ProtocolConnection> {
  return await connectToFirst(target, undefined, (server) =>
    connectWithFallback(server, (encryption) => tryOnce(server, options, encryption)),
  );
}

async function tryOnce(
  target: ConnectionTarget,
  options: ConnectOptions,
  encryption: Encryption,
): Promise<ProtocolConnection> {
  const { connectTimeoutMs } = target;
  const limit = new AbortController();
  const timer = connectTimeoutMs > 0 ? setTimeout(() => limit.abort(), connectTimeoutMs) : undefined;
  try {
    return await open(target, options, encryption, limit.signal);
  } catch (error) {
    throw failure(target, limit.signal.aborted ? new ConnectionProblem("timeout expired") : error);
  } finally {
    clearTimeout(timer);
  }
}

async function open(
  target: ConnectionTarget,
  { applicationName, startup, messageLimit }: ConnectOptions,
  encryption: Encryption,
  signal: AbortSignal,
): Promise<ProtocolConnection> {
  const tls = tlsSettings(target);
  const address = socketAddress(target);
  const stream = await openSocket(address, { tls, encryption, keepAliveMs, signal });
  const destroy = (): void => void stream.destroy();
  signal.addEventListener("abort", destroy, { once: true });
  try {
    const { user, database, password = null } = target;
    const { pid } = await login(
      stream,
      {
        user,
        password,
        database,
        applicationName,
        startup: { options: startup.options },
        channelBinding: "prefer",
        authMethods: null,
        passwordRequired: false,
      },
      signal,
    );
    return new ProtocolConnection({ pid, stream }, messageLimit);
  } catch (error) {
    stream.destroy();
    throw error;
  } finally {
    signal.removeEventListener("abort", destroy);
  }
}

function failure(target: ConnectionTarget, error: unknown): PgTaskError {
  if (error instanceof LoginRefused) return rejectedError(target, error.error, error);
  if (error instanceof MissingPassword) return missingPasswordError(target, error);
  return unreachableError(target, error);
}
