import type { LookupAddress } from "node:dns";
import { lookup } from "node:dns/promises";
import { getSystemErrorMap } from "node:util";
import type { SslMode } from "../../shared/config/types.js";
import { hidden } from "../../shared/postgres/connectionString/error.js";
import type { RemoteProcess } from "../../shared/ipc/messages.js";
import { ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import { cancelRemote } from "../../shared/postgres/cancelRequest.js";
import { introduce, isStill, WrongSession } from "./sessionSetup.js";
import { login, LoginRefused } from "../../shared/postgres/auth/login.js";
import { ConnectionProblem, PasswordRequired, TlsProblem } from "../../shared/postgres/errors.js";
import type { Encryption } from "../../shared/postgres/transport/tlsSettings.js";
import {
  openSocket,
  socketPath,
  type SocketAddress,
} from "../../shared/postgres/transport/openSocket.js";
import { ServerFull, type ManagerServer } from "./managerServerLimit.js";
import type { RemoteServer, RemoteTarget, SessionAttributes } from "./remoteTarget.js";

/** A connection to a remote server that can run a task. */
export interface RemoteConnection {
  readonly wire: ProtocolConnection;
  /** The server as it was reached, and the process there that runs the task. */
  readonly place: RemoteProcess;
  /** Which of the servers it is, for messages. */
  readonly where: string;
  /**
   * Whether it is as a new one would be, or as it was left where it was kept with its state; sets it up
   * for the next run.
   */
  renew(saved: boolean): Promise<boolean>;
  /** Cancels what it runs; resolves when the server has got that, with false when it could not. */
  cancel(): Promise<boolean>;
}

export interface RemoteConnectOptions {
  /** What the session is called where the connection string does not say. */
  readonly applicationName: string;
  /** Largest message kept whole, in bytes. */
  readonly messageLimit: number;
  /** What tells which servers have room for connections. */
  readonly ownServer: ManagerServer;
  /** Ends the attempt; its reason is thrown. */
  readonly signal: AbortSignal;
}

/** What one attempt came to nothing with, and where to go on, if anywhere. */
interface Failure {
  readonly problem: ConnectionProblem;
  readonly next: "encryption" | "address" | "server" | "none";
}

/** The server starts, stops or recovers: another one may take us. */
const cannotConnectNow = "57P03";
const tooManyConnections = "53300";
/** A wrong password, no such database, too little of something, such as connections. */
const sameEitherWay = /^(?:28P01|3D000|53...)$/;

/**
 * Opens a connection to the first of the target's servers that lets us in and is of the wanted
 * kind. The message of a failure has a line for each attempt.
 *
 * @throws ConnectionProblem, NoRoom, and the signal's reason
 */
export async function connectRemote(
  target: RemoteTarget,
  options: RemoteConnectOptions,
): Promise<RemoteConnection> {
  const wanted = target.sessionAttributes;
  const passes: SessionAttributes[] = wanted === "prefer-standby" ? ["standby", "any"] : [wanted];
  let problems: ConnectionProblem[] = [];
  for (const pass of passes) {
    problems = [];
    for (const server of target.servers) {
      const outcome = await tryServer(server, target, pass, options);
      if ("wire" in outcome) return outcome;
      problems.push(...outcome.problems);
      if (outcome.final) throw joined(problems);
    }
  }
  throw joined(problems);
}

function joined(problems: readonly ConnectionProblem[]): ConnectionProblem {
  const last = problems.at(-1);
  const { detail, hint } = last ?? {};
  return new ConnectionProblem(problems.map(({ message }) => message).join("\n"), {
    ...(detail === undefined ? {} : { detail }),
    ...(hint === undefined ? {} : { hint }),
  });
}

async function tryServer(
  server: RemoteServer,
  target: RemoteTarget,
  wanted: SessionAttributes,
  options: RemoteConnectOptions,
): Promise<RemoteConnection | { readonly problems: ConnectionProblem[]; readonly final: boolean }> {
  const problems: ConnectionProblem[] = [];
  try {
    for (const place of await placesOf(server, options.signal)) {
      const said = new Set<string>();
      // A socket of this machine is never encrypted.
      const mode = place.address === null ? "disable" : target.security.mode;
      for (const encryption of encryptions[mode]) {
        const attempt = { server, place, encryption, target, wanted };
        const outcome = await tryPlace(attempt, options);
        if (!("problem" in outcome)) return outcome;
        // With the same words for both ways one line says it.
        if (!said.has(outcome.problem.message)) problems.push(outcome.problem);
        said.add(outcome.problem.message);
        if (outcome.next === "none") return { problems, final: true };
        if (outcome.next === "server") return { problems, final: false };
        if (outcome.next === "address") break;
      }
    }
  } catch (error) {
    options.signal.throwIfAborted();
    if (!(error instanceof ConnectionProblem)) throw error;
    problems.push(error);
  }
  return { problems, final: false };
}

/** Where exactly a server is to be reached. @throws ConnectionProblem, and the signal's reason */
export async function placesOf(
  server: Omit<RemoteServer, "password">,
  signal: AbortSignal,
): Promise<SocketAddress[]> {
  const { host, address, port } = server;
  if (address !== null || /^[/@]/.test(host)) return [{ host, address, port }];
  try {
    const found = await lookUp(host, signal);
    return found.map((each) => ({ host, address: each.address, port }));
  } catch (error) {
    signal.throwIfAborted();
    const temporary = errorCode(error) === "EAI_AGAIN";
    const why = temporary ? "Temporary failure in name resolution" : "Name or service not known";
    throw new ConnectionProblem(
      `could not translate host name "${withoutSecret(host)}" to address: ${why}`,
    );
  }
}

async function lookUp(host: string, signal: AbortSignal): Promise<LookupAddress[]> {
  return await new Promise((resolve, reject) => {
    const aborted = (): void => reject(signal.reason);
    signal.addEventListener("abort", aborted, { once: true });
    void lookup(host, { all: true, order: "verbatim" })
      .then(resolve, reject)
      .finally(() => signal.removeEventListener("abort", aborted));
  });
}

/** What stands before an "@" is most likely the rest of a password that has one. */
const withoutSecret = (host: string): string => host.replace(/^.*@/s, `${hidden}@`);

/** What sslmode says is to be tried, one after another. */
const encryptions: Readonly<Record<SslMode, readonly Encryption[]>> = {
  disable: ["none"],
  allow: ["none", "required"],
  prefer: ["ifOffered", "none"],
  require: ["required"],
  "verify-ca": ["required"],
  "verify-full": ["required"],
};

interface Attempt {
  readonly server: RemoteServer;
  readonly place: SocketAddress;
  readonly encryption: Encryption;
  readonly target: RemoteTarget;
  readonly wanted: SessionAttributes;
}

async function tryPlace(
  attempt: Attempt,
  options: RemoteConnectOptions,
): Promise<RemoteConnection | Failure> {
  const { ownServer } = options;
  const { place, target } = attempt;
  const { connectTimeoutMs } = target;
  const entered = await ownServer.enter(place, options.signal);
  let opened = false;
  const reached = { encrypted: false };
  const limit = new AbortController();
  const timer =
    connectTimeoutMs > 0 ? setTimeout(() => limit.abort(), connectTimeoutMs) : undefined;
  try {
    const signal = AbortSignal.any([options.signal, limit.signal]);
    const connection = await open(attempt, { ...options, signal }, reached);
    opened = true;
    return connection;
  } catch (error) {
    options.signal.throwIfAborted();
    const full = error instanceof LoginRefused && error.error.code === tooManyConnections;
    if (full && ownServer.is(place)) throw new ServerFull();
    const late = limit.signal.aborted;
    const problem = late ? new ConnectionProblem("timeout expired") : error;
    return failure(attempt, problem, reached.encrypted);
  } finally {
    clearTimeout(timer);
    entered(opened);
  }
}

/** @param reached is told whether the connection is encrypted. */
async function open(
  attempt: Attempt,
  options: RemoteConnectOptions,
  reached: { encrypted: boolean },
): Promise<RemoteConnection> {
  const { server, place, encryption, target, wanted } = attempt;
  const { signal, messageLimit } = options;
  const { security, keepAliveMs } = target;
  const stream = await openSocket(place, { security, encryption, keepAliveMs, signal });
  reached.encrypted = "encrypted" in stream;
  const end = (): void => void stream.destroy();
  signal.addEventListener("abort", end, { once: true });
  try {
    const applicationName = target.applicationName ?? options.applicationName;
    const { password } = server;
    const key = await login(stream, { ...target, password, applicationName }, signal);
    const wire = new ProtocolConnection({ pid: key.pid, stream }, () => messageLimit);
    const known = await introduce(wire, target, wanted);
    const { pid, owner, started } = known;
    options.ownServer.met(place, started);
    signal.throwIfAborted();
    const encrypted: Encryption = reached.encrypted ? "required" : "none";
    const secured = { security, keepAliveMs, encryption: encrypted };
    const cancel = (): Promise<boolean> => cancelRemote(place, key, secured);
    const renew = (saved: boolean): Promise<boolean> =>
      isStill(wire, target, { wanted, known, saved });
    return { wire, place: { ...place, pid, owner }, where: describe(place), renew, cancel };
  } catch (error) {
    stream.destroy();
    throw error;
  } finally {
    signal.removeEventListener("abort", end);
  }
}

function failure(
  { place, encryption, target }: Attempt,
  error: unknown,
  encrypted: boolean,
): Failure {
  const problem = named(describe(place), error);
  const { mode } = target.security;
  const withoutTls = mode === "prefer" && encryption === "ifOffered";
  const withTls = mode === "allow" && encryption === "none";
  if (error instanceof WrongSession) return { problem, next: "server" };
  if (error instanceof LoginRefused) {
    if (error.error.code === cannotConnectNow) return { problem, next: "server" };
    const another = withTls || (withoutTls && encrypted);
    return { problem, next: another && mayHelp(error) ? "encryption" : "none" };
  }
  if (error instanceof TlsProblem) return { problem, next: withoutTls ? "encryption" : "none" };
  if (error instanceof ConnectionProblem && error.message !== "timeout expired") {
    return { problem, next: "none" };
  }
  return { problem, next: "address" };
}

/** Whether with TLS instead of without, or the other way round, the server may let us in. */
function mayHelp({ error, authenticated }: LoginRefused): boolean {
  return !authenticated && !sameEitherWay.test(error.code);
}

function named(where: string, error: unknown): ConnectionProblem {
  const prefix = `connection to server ${where} failed: `;
  if (error instanceof LoginRefused) {
    const { severity, message, detail, hint } = error.error;
    return new ConnectionProblem(`${prefix}${severity}:  ${message}`, {
      ...(detail === undefined ? {} : { detail }),
      ...(hint === undefined ? {} : { hint }),
    });
  }
  if (error instanceof PasswordRequired) return error;
  return new ConnectionProblem(
    prefix + (error instanceof ConnectionProblem ? error.message : systemReason(error)),
  );
}

function describe({ host, address, port }: SocketAddress): string {
  if (address === null) return `on socket "${socketPath(host, port)}"`;
  if (host === "" || host === address) return `at "${address}", port ${port}`;
  return `at "${host}" (${address}), port ${port}`;
}

/** The C library's words, with libpq's question behind the two that everybody meets. */
function systemReason(error: unknown): string {
  const code = errorCode(error);
  if (code === "ECONNREFUSED") {
    return "Connection refused\nIs the server running on that host and accepting TCP/IP connections?";
  }
  if (code === "ENOENT") {
    return "No such file or directory\nIs the server running locally and accepting connections on that socket?";
  }
  const errno = error instanceof Error && "errno" in error ? Number(error.errno) : 0;
  const [, words] = getSystemErrorMap().get(errno) ?? [];
  if (words !== undefined) return words.charAt(0).toUpperCase() + words.slice(1);
  return error instanceof Error ? error.message : String(error);
}

function errorCode(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}
