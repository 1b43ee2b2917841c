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

export interface RemoteRunContext extends TaskTableName {
  /** The local session that has the task. The run's start and stop are read from its server's clock. */
  readonly session: { readonly wire: ProtocolConnection; readonly backend: BackendIdentity };
  readonly sessionCache: RemoteSessionCache;
  readonly connectionPermits: ConnectionPermits;
  readonly managerTarget: ConnectionTarget;
  readonly isSuperuser: boolean;
  readonly outputLimit: number;
  /** Ledger in which the run's location (server and backend) is recorded. Quoted and schema-qualified. */
  readonly ledger: string;
  readonly log: ForwardingLog;
  /** How long, in ms, the server of a run that lost its connection is asked whether it is still active. */
  readonly lostRunTimeoutMs: number;
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

/** Replaces an error that may quote a part of a password. */
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
