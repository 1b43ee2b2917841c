import type { ConnectionTarget, SslMode } from "../config/types.js";
import { notReached, rejected, withoutPassword } from "./connectionErrors.js";
import { PgTaskError } from "../errors.js";
import type { Startup } from "./startupOptions.js";
import type { Encryption, Security } from "./transport/tlsSettings.js";
import { login, LoginRefused } from "./auth/login.js";
import { ConnectionProblem, NoPassword } from "./errors.js";
import { openSocket, type SocketAddress } from "./transport/openSocket.js";
import { ProtocolConnection } from "./protocol/connection.js";

/** Idle time after which the connection is probed, in ms. */
const keepAliveMs = 5_000;

export interface ConnectOptions {
  readonly applicationName: string;
  readonly startup: Startup;
  /** Largest message kept whole, in bytes; asked anew for each. */
  readonly messageLimit: () => number;
}

/**
 * Logs in to a server of the configuration, over a connection that is secured as `connect` of
 * shared/database.ts does it. Without pg: that is as much to load as all that a thread needs besides.
 *
 * @throws PgTaskError CONNECTION_FAILED when the server is not reached, CONNECTION_REJECTED with the
 * server's own words when it refuses, CONNECTION_POOLED when a pooler does.
 */
export async function openProtocolConnection(
  target: ConnectionTarget,
  options: ConnectOptions,
): Promise<ProtocolConnection> {
  const [first, second] = encryptions[target.sslmode];
  try {
    return await tryOnce(target, options, first);
  } catch (error) {
    const again = error instanceof PgTaskError && error.code === "CONNECTION_REJECTED";
    if (second === undefined || !again) throw error;
    return await tryOnce(target, options, second);
  }
}

/** What sslmode says is to be tried; the second one when the server refuses the first. */
const encryptions: Readonly<Record<SslMode, readonly [Encryption, Encryption?]>> = {
  disable: ["none"],
  allow: ["none", "required"],
  prefer: ["ifOffered"],
  require: ["required"],
  "verify-ca": ["required"],
  "verify-full": ["required"],
};

async function tryOnce(
  target: ConnectionTarget,
  options: ConnectOptions,
  encryption: Encryption,
): Promise<ProtocolConnection> {
  const { connectTimeoutMs } = target;
  const limit = new AbortController();
  const timer =
    connectTimeoutMs > 0 ? setTimeout(() => limit.abort(), connectTimeoutMs) : undefined;
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
  const security = securityOf(target);
  const stream = await openSocket(placeOf(target), { security, encryption, keepAliveMs, signal });
  const end = (): void => void stream.destroy();
  signal.addEventListener("abort", end, { once: true });
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
    signal.removeEventListener("abort", end);
  }
}

/** Names are looked up by Node, which tries all of their addresses. */
function placeOf({ host, port }: ConnectionTarget): SocketAddress {
  return { host, address: host.startsWith("/") ? null : host, port };
}

function securityOf(target: ConnectionTarget): Security {
  const { sslmode, sslrootcert, sslcert = null, sslkey = null } = target;
  return {
    mode: sslmode,
    direct: false,
    roots: sslrootcert === undefined ? { kind: "node" } : { kind: "file", path: sslrootcert },
    revoked: null,
    certificate: sslcert,
    key: sslkey,
    keyPassword: null,
    keyMustBePrivate: false,
    named: true,
    oldest: "TLSv1.2",
    newest: null,
  };
}

function failure(target: ConnectionTarget, error: unknown): PgTaskError {
  if (error instanceof LoginRefused) return rejected(target, error.error, error);
  if (error instanceof NoPassword) return withoutPassword(target, error);
  return notReached(target, error);
}
