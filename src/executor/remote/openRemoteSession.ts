import type { Run } from "../../shared/ipc/run.js";
import { busySessionName, type TaskTableName } from "../../shared/postgres/applicationNames.js";
import type { BackendIdentity } from "../../shared/postgres/backendIdentity.js";
import { maskConnectionString } from "../../shared/postgres/connectionString/maskConnectionString.js";
import { ConnectionProblem } from "../../shared/postgres/errors.js";
import { mask } from "../../shared/logRedaction.js";
import type { ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import type { ForwardingLog } from "../forwardingLog.js";
import { messageLimit } from "../session/connector.js";
import type { ConnectionPermits } from "./connectionPermits.js";
import { ManagerServer, readServerIdentity } from "./managerServer.js";
import { RemoteSession, type RemoteSessionCache } from "./remoteSession.js";
import { describeRemoteTarget, type RemoteTarget } from "./remoteTarget.js";

/** The local session that has the remote task, and what is needed to connect to the remote server. */
export interface RemoteRunContext extends TaskTableName {
  /**
   * The local session that has the task. The start and stop of the run are read from its server's clock. If this
   * session is lost, the run ends.
   */
  readonly session: { readonly wire: ProtocolConnection; readonly backend: BackendIdentity };
  /** Holds the remote session that is kept between runs. */
  readonly sessionCache: RemoteSessionCache;
  readonly connectionPermits: ConnectionPermits;
  readonly managerTarget: ConnectionTarget;
  readonly isSuperuser: boolean;
  readonly outputLimit: number;
  /** Name of the ledger in which the run's location (server and backend) is recorded. Quoted and schema-qualified. */
  readonly ledger: string;
  readonly log: ForwardingLog;
  /**
   * If a remote run loses its connection, its server is asked whether the run is still active, at most for this long,
   * in ms.
   */
  readonly lostRunTimeoutMs: number;
  /** Called when the run starts, with the time by the clock of the local session's server. */
  readonly onStart: (start: string) => void;
  /**
   * Called with the pid of the remote backend if the pid could not be written to the task's row because the row is
   * locked.
   */
  readonly onPidNotShown: (pid: number) => void;
}

/** A remote task that is about to run. */
interface RemoteTask extends Pick<Run, "id" | "group"> {
  /** The connection string. */
  readonly remote: string;
}

/**
 * Returns the session that was kept for this group and connection string, if it is still usable. Otherwise opens a new
 * session.
 *
 * @throws ConnectionStringError, ConnectionProblem
 * @throws ServerFull if the manager's server has no capacity for the connection
 * @throws PgTaskError CONNECTION_LOST
 * @throws the signal's reason
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
  const [target, server] = await Promise.all([
    resolve(task, context),
    readServerIdentity(context.session.wire, context.managerTarget.port),
  ]);
  const { connectRemote } = await import("./connectRemote.js");
  signal.throwIfAborted();
  const managerServer = new ManagerServer(context.connectionPermits, server);
  try {
    const connection = await connectRemote(target, {
      applicationName: busySessionName(context, group),
      messageLimit: messageLimit(context.outputLimit),
      managerServer,
      signal,
    });
    return new RemoteSession(target, connection, managerServer);
  } catch (error) {
    const isShown = !(error instanceof ConnectionProblem) || maskConnectionString(remote) !== mask;
    throw isShown ? error : hiddenProblem(error);
  }
}

/** Replaces an error that may quote a part of a password: the error names the server, and the server what it got. */
const hiddenProblem = ({ sqlstate }: ConnectionProblem): ConnectionProblem =>
  new ConnectionProblem(`connection to server "${mask}" failed (SQLSTATE ${sqlstate})`, {
    sqlstate,
    hint: 'A password may be in the wrong place of "remote". In a URL, write "@", ":" and "/" in a password as %40, %3A and %2F.',
  });

async function resolve({ id, remote }: RemoteTask, context: RemoteRunContext): Promise<RemoteTarget> {
  const { managerTarget, isSuperuser, log } = context;
  const { resolveRemote } = await import("./resolveRemoteTarget.js");
  const target = await resolveRemote(remote, {
    managerTarget,
    isSuperuser,
    env: process.env,
    warn: (message) => log.warn({ id }, message),
  });
  log.debug(
    { id, server: maskConnectionString(remote) === mask ? mask : describeRemoteTarget(target) },
    "connecting for remote task",
  );
  return target;
}
