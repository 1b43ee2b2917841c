import type { PgTaskError } from "../../shared/errors.js";
import { Pipeline, sessionClosed } from "../session/pipeline.js";
import type { Execution, RunOutcome } from "../run/execution.js";
import { connectRemote, type RemoteConnection } from "./connectRemote.js";
import { ManagerServer, type ConnectionPermits, readServerIdentity } from "./managerServer.js";
import type { RemoteLedgers } from "./remoteLedgers.js";
import { resolveRemote, type RemoteTarget, describeRemoteTarget } from "./resolveRemoteTarget.js";
import { timeoutSignal } from "../../shared/timeoutSignal.js";
import type { ExecutorParameters } from "../../shared/ipc/executorMessages.js";
import type { Run } from "../../shared/ipc/run.js";
import { busySessionName } from "../../shared/postgres/applicationNames.js";
import type { BackendIdentity } from "../../shared/postgres/backendIdentity.js";
import { maskConnectionString } from "../../shared/postgres/connectionString/maskConnectionString.js";
import { ConnectionProblem } from "../../shared/postgres/errors.js";
import { mask } from "../../shared/logRedaction.js";
import { lastValue, type ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import type { ForwardingLog } from "../forwardingLog.js";
import { messageLimit } from "../session/connector.js";

/** A kept session that does not answer within this time, in ms, is not usable. */
const answerMs = 5_000;

interface RemoteSessionParts {
  readonly target: RemoteTarget;
  readonly connection: RemoteConnection;
  readonly managerServer: ManagerServer;
  readonly home: string | null;
}

/**
 * A session on a remote server. It runs one task at a time, and can be kept for the next one (`count`, `live`). A run that
 * loses the connection fails. A kept session that loses it is not usable.
 */
export class RemoteSession {
  readonly target: RemoteTarget;
  readonly connection: RemoteConnection;
  readonly managerServer: ManagerServer;
  /** Id of the task table's home. Null if it cannot be read. */
  readonly home: string | null;
  readonly #pipeline: Pipeline;
  #settle: {
    readonly finish: (outcome: RunOutcome) => void;
    readonly fail: (reason: PgTaskError) => void;
  } | null = null;
  #lost: PgTaskError | null = null;
  #isStateSaved = false;

  constructor({ target, connection, managerServer, home }: RemoteSessionParts) {
    this.target = target;
    this.connection = connection;
    this.managerServer = managerServer;
    this.home = home;
    const { wire } = connection;
    const pipeline = new Pipeline(wire, {
      finished: (_, outcome) => this.#settle?.finish(outcome),
      lost() {},
      retry: (run) => pipeline.send(run, null),
      started() {},
      changed() {},
    });
    this.#pipeline = pipeline;
    void wire.ended.then((reason) => this.#connectionLost(reason));
  }

  /** @throws PgTaskError CONNECTION_LOST if the outcome of the run is unknown */
  async run(execution: Execution): Promise<RunOutcome> {
    if (this.#lost !== null) throw this.#lost;
    this.#isStateSaved = execution.run.save;
    try {
      return await new Promise((finish, fail) => {
        this.#settle = { finish, fail };
        this.#pipeline.send(execution, null);
      });
    } finally {
      // Allows the output to be garbage-collected.
      this.#settle = null;
    }
  }

  /** Prepares the session for its next run. Closes it if it cannot be used. */
  async isUsable(signal: AbortSignal): Promise<boolean> {
    const { wire } = this.connection;
    const limited = timeoutSignal(answerMs, signal);
    const onAbort = (): void => wire.destroy(noAnswer);
    limited.addEventListener("abort", onAbort, { once: true });
    try {
      if (await this.connection.prepareNextRun(this.#isStateSaved)) return true;
      await wire.close();
      return false;
    } finally {
      limited.removeEventListener("abort", onAbort);
    }
  }

  async close(): Promise<void> {
    await this.connection.wire.close();
  }

  async #connectionLost(reason: PgTaskError): Promise<void> {
    this.#lost = reason;
    await this.#pipeline.connectionLost(reason);
    this.#settle?.fail(reason);
  }
}

const noAnswer = sessionClosed("no answer from the kept remote session");

interface CachedSession {
  readonly remote: string;
  readonly group: string;
  readonly session: RemoteSession;
}

/** Holds the remote session that a local session keeps for the next task of the same group and connection string. */
export class RemoteSessionCache {
  #kept: CachedSession | null = null;
  #home: Promise<string | null> | null = null;

  /** The home cannot change during a local session: all sessions end when rows of another table are found. */
  async readHome(wire: ProtocolConnection, homeTable: string): Promise<string | null> {
    this.#home ??= wire.query(`SELECT h.id FROM ${homeTable} AS h ORDER BY h.since, h.id LIMIT 1`).then(lastValue);
    return await this.#home;
  }

  keep(kept: CachedSession): void {
    this.#kept = kept;
  }

  /** Removes and returns the session kept for this connection string and group. Closes one that is kept for another. */
  async take({ remote, group }: Omit<CachedSession, "session">): Promise<RemoteSession | null> {
    const kept = this.#kept;
    if (kept !== null && kept.remote === remote && kept.group === group) {
      this.#kept = null;
      return kept.session;
    }
    await this.end();
    return null;
  }

  async end(): Promise<void> {
    const kept = this.#kept;
    this.#kept = null;
    await kept?.session.close();
  }
}

/** The local session that has the task, and the executor's parameters at its start. */
export interface RemoteRunContext extends ExecutorParameters {
  /** The run's start and stop are read from its server's clock. */
  readonly session: { readonly wire: ProtocolConnection; readonly backend: BackendIdentity };
  readonly sessionCache: RemoteSessionCache;
  readonly connectionPermits: ConnectionPermits;
  readonly remoteLedgers: RemoteLedgers;
  readonly log: ForwardingLog;
  readonly onStart: (start: string) => void;
  /** Called if the remote backend's pid could not be written to the task's row, because the row is locked. */
  readonly onPidNotShown: (pid: number) => void;
}

interface RemoteTask extends Pick<Run, "id" | "group"> {
  readonly remote: string;
}

/**
 * Returns the session that was kept for this group and connection string if it is still usable, otherwise a new one.
 *
 * @throws ConnectionStringError, ConnectionProblem, ServerFull, PgTaskError CONNECTION_LOST, the signal's reason
 */
export async function openRemoteSession(
  task: RemoteTask,
  context: RemoteRunContext,
  signal: AbortSignal,
): Promise<RemoteSession> {
  const { remote, group } = task;
  const kept = await context.sessionCache.take({ remote, group });
  if (kept !== null && (await kept.isUsable(signal))) return kept;
  signal.throwIfAborted();
  const { wire } = context.session;
  const [target, server, home] = await Promise.all([
    resolve(task, context),
    readServerIdentity(wire, context.target.port),
    context.sessionCache.readHome(wire, context.homeTable),
  ]);
  signal.throwIfAborted();
  const managerServer = new ManagerServer(context.connectionPermits, server);
  try {
    const connection = await connectRemote(target, {
      applicationName: busySessionName(context, group),
      messageLimit: messageLimit(context.outputLimit),
      managerServer,
      signal,
    });
    return new RemoteSession({ target, connection, managerServer, home });
  } catch (error) {
    const isShown = !(error instanceof ConnectionProblem) || maskConnectionString(remote) !== mask;
    throw isShown ? error : hiddenProblem(error);
  }
}

/** Replaces an error that may quote a part of a password. */
const hiddenProblem = ({ sqlstate }: ConnectionProblem): ConnectionProblem =>
  new ConnectionProblem(`connection to server "${mask}" failed (SQLSTATE ${sqlstate})`, {
    sqlstate,
    hint: 'A password may be in the wrong place of "remote". In a URL, write "@", ":" and "/" in a password as %40, %3A and %2F.',
  });

async function resolve({ id, remote }: RemoteTask, context: RemoteRunContext): Promise<RemoteTarget> {
  const { target: managerTarget, isSuperuser, log } = context;
  const target = await resolveRemote(remote, {
    managerTarget,
    isSuperuser,
    env: process.env,
    warn: (message) => log.warn({ id }, message),
  });
  log.debug({ id, server: shownServer(remote, target) }, "connecting for remote task");
  return target;
}

/** Shows no part of a string that may have a password in the wrong place. */
export const shownServer = (remote: string, target: RemoteTarget): string =>
  maskConnectionString(remote) === mask ? mask : describeRemoteTarget(target);
