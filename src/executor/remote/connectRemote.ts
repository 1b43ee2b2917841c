import { getSystemErrorMap } from "node:util";
import { omitUndefined } from "../../shared/omitUndefined.js";
import { errorMessage, systemErrorCode } from "../../shared/errors.js";
import type { RemoteProcess } from "../../shared/ipc/run.js";
import { ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import { sendCancelRequest } from "../../shared/postgres/cancelRequest.js";
import { setUpSession, prepareKeptSession, SessionMismatch, type RemoteSessionState } from "./sessionSetup.js";
import { LoginRefused } from "../../shared/postgres/auth/login.js";
import { ConnectionProblem, PasswordRequired, TlsProblem } from "../../shared/postgres/errors.js";
import { cannotConnectNow, tooManyConnections } from "../../shared/postgres/sqlStates.js";
import {
  onlyServer,
  serversOf,
  tlsSettings,
  type SessionAttributes,
  type TargetServer,
} from "../../shared/postgres/target/target.js";
import { resolveServer, tryServers, type NextTry } from "../../shared/postgres/target/tryServers.js";
import type { Encryption } from "../../shared/postgres/transport/sslMode.js";
import type { SocketAddress } from "../../shared/postgres/transport/socketOptions.js";
import { openAddress, timeoutExpired, type OpenStream } from "../../shared/postgres/openStream.js";
import { socketPath } from "../../shared/postgres/transport/openSocket.js";
import { ServerFull, type ManagerServer } from "./managerServer.js";
import type { RemoteTarget } from "./resolveRemoteTarget.js";

/** A connection to another server, on which a remote task can run. */
export interface RemoteConnection {
  readonly wire: ProtocolConnection;
  readonly process: RemoteProcess;
  readonly known: Pick<RemoteSessionState, "serverStartedAt" | "obstacle">;
  /** For messages. */
  readonly serverLabel: string;
  /**
   * Sets the session up for its next run. Returns false if it must not be used, because its connection is lost or a new
   * session would be different.
   *
   * @param saved whether the session keeps the state that the last run left
   */
  prepareNextRun(saved: boolean): Promise<boolean>;
  /** Sends a cancel request. Returns whether it has reached the server. */
  cancel(): Promise<boolean>;
}

export interface RemoteConnectOptions {
  /** Used if the connection string gives none. */
  readonly applicationName: string;
  /** The largest message that is buffered as a whole, in bytes. */
  readonly messageLimit: number;
  readonly managerServer: ManagerServer;
  readonly signal: AbortSignal;
}

interface Failure {
  readonly problem: ConnectionProblem;
  readonly next: NextTry;
}

/** Refusals that have nothing to do with TLS: wrong password, no such database, and lack of connections and the like. */
const unaffectedByTls = /^(?:28P01|3D000|53...)$/;

/**
 * Connects to the first of the target's servers that accepts the login and has the wanted attributes.
 *
 * @throws ConnectionProblem with a line for each failed attempt; ServerFull; the signal's reason
 */
export async function connectRemote(target: RemoteTarget, options: RemoteConnectOptions): Promise<RemoteConnection> {
  const wanted = target.sessionAttributes ?? "any";
  const passes: SessionAttributes[] = wanted === "prefer-standby" ? ["standby", "any"] : [wanted];
  let problems: ConnectionProblem[] = [];
  for (const pass of passes) {
    const outcome = await tryServers<RemoteConnection, ConnectionProblem>(serversOf(target), {
      sslmode: target.sslmode,
      resolve: (server) => resolveAddresses(server, options.signal),
      unresolved: (error) => {
        if (!(error instanceof ConnectionProblem)) throw error;
        return error;
      },
      connect: (server, address, encryption) =>
        tryAddress({ server, address, encryption, target, wanted: pass }, options),
      // If the attempts with and without encryption fail with the same message, it is reported once.
      reported: (failed) =>
        failed.filter(({ message }, index) => failed.findIndex((each) => each.message === message) === index),
    });
    if ("connection" in outcome) return outcome.connection;
    problems = outcome.problems;
    if (outcome.isFinal) break;
  }
  throw joinProblems(problems);
}

function joinProblems(problems: readonly ConnectionProblem[]): ConnectionProblem {
  const { detail, hint, sqlstate } = problems.at(-1) ?? {};
  const message = problems.map((each) => each.message).join("\n");
  return new ConnectionProblem(message, { detail, hint, sqlstate });
}

/** @throws ConnectionProblem if the name cannot be resolved; the signal's reason */
export async function resolveAddresses(server: TargetServer, signal: AbortSignal): Promise<SocketAddress[]> {
  try {
    return await resolveServer(server, signal);
  } catch (error) {
    signal.throwIfAborted();
    const temporary = systemErrorCode(error) === "EAI_AGAIN";
    const reason = temporary ? "Temporary failure in name resolution" : "Name or service not known";
    throw new ConnectionProblem(`could not translate host name "${server.host}" to address: ${reason}`);
  }
}

interface ConnectAttempt {
  readonly server: TargetServer;
  readonly address: SocketAddress;
  readonly encryption: Encryption;
  readonly target: RemoteTarget;
  readonly wanted: SessionAttributes;
}

async function tryAddress(
  attempt: ConnectAttempt,
  options: RemoteConnectOptions,
): Promise<{ readonly connection: RemoteConnection } | Failure> {
  const { managerServer, signal } = options;
  const { server, address, encryption, target } = attempt;
  const endReservation = await managerServer.reserve(address, signal);
  let opened = false;
  try {
    const applicationName = target.applicationName ?? options.applicationName;
    const startup = { ...target.startup, ...omitUndefined({ options: target.options }) };
    const { passwordRequired } = target;
    const connection = await openAddress(
      onlyServer(target, server),
      { address, encryption, signal, applicationName, startup, passwordRequired },
      async (open) => await setUp(open, attempt, options),
    );
    opened = true;
    return { connection };
  } catch (error) {
    signal.throwIfAborted();
    const full = error instanceof LoginRefused && error.error.code === tooManyConnections;
    if (full && managerServer.isAt(address)) throw new ServerFull();
    return toFailure(attempt, error);
  } finally {
    endReservation(opened);
  }
}

async function setUp(
  { stream, key }: OpenStream,
  { address, target, wanted }: ConnectAttempt,
  { messageLimit, managerServer, signal }: RemoteConnectOptions,
): Promise<RemoteConnection> {
  const wire = new ProtocolConnection({ pid: key.pid, stream }, () => messageLimit);
  const known = await setUpSession(wire, target, wanted);
  const { pid, owner, serverStartedAt } = known;
  managerServer.recordStart(address, serverStartedAt);
  signal.throwIfAborted();
  const { keepAliveMs = null } = target;
  const encryption: Encryption = "encrypted" in stream ? "required" : "none";
  return {
    wire,
    process: { ...address, pid, owner },
    known,
    serverLabel: describeAddress(address),
    prepareNextRun: (saved) => prepareKeptSession(wire, target, { wanted, known, saved }),
    cancel: () => sendCancelRequest(address, key, { tls: tlsSettings(target), keepAliveMs, encryption }),
  };
}

function toFailure({ address, encryption, target }: ConnectAttempt, error: unknown): Failure {
  const problem = toProblem(describeAddress(address), error);
  const { sslmode: mode } = target;
  const withoutTls = mode === "prefer" && encryption === "ifOffered";
  const withTls = mode === "allow" && encryption === "none";
  if (error instanceof SessionMismatch) return { problem, next: "server" };
  if (error instanceof LoginRefused) {
    if (error.error.code === cannotConnectNow) return { problem, next: "server" };
    const canSwitch = withTls || (withoutTls && error.encrypted);
    const mayHelp = !error.authenticated && !unaffectedByTls.test(error.error.code);
    return { problem, next: canSwitch && mayHelp ? "encryption" : "none" };
  }
  if (error instanceof TlsProblem) return { problem, next: withoutTls ? "encryption" : "none" };
  const isFinal = error instanceof ConnectionProblem && error.message !== timeoutExpired;
  return { problem, next: isFinal ? "none" : "address" };
}

function toProblem(serverLabel: string, error: unknown): ConnectionProblem {
  const prefix = `connection to server ${serverLabel} failed: `;
  if (error instanceof LoginRefused) {
    const { severity, code, message, detail, hint } = error.error;
    const shown = `${prefix}${severity}:  ${message}`;
    return new ConnectionProblem(shown, { sqlstate: code, detail, hint });
  }
  if (error instanceof PasswordRequired) return error;
  return new ConnectionProblem(prefix + (error instanceof ConnectionProblem ? error.message : systemReason(error)));
}

function describeAddress({ host, address, port }: SocketAddress): string {
  if (address === null) return `on socket "${socketPath(host, port)}"`;
  if (host === "" || host === address) return `at "${address}", port ${port}`;
  return `at "${host}" (${address}), port ${port}`;
}

/** Returns the C library's message, for the two most frequent errors with the question that libpq asks the user. */
function systemReason(error: unknown): string {
  const code = systemErrorCode(error);
  if (code === "ECONNREFUSED") {
    return "Connection refused\nIs the server running on that host and accepting TCP/IP connections?";
  }
  if (code === "ENOENT") {
    return "No such file or directory\nIs the server running locally and accepting connections on that socket?";
  }
  const errno = error instanceof Error && "errno" in error ? Number(error.errno) : 0;
  const [, message] = getSystemErrorMap().get(errno) ?? [];
  if (message !== undefined) return message.charAt(0).toUpperCase() + message.slice(1);
  return errorMessage(error);
}
