import type { Entry } from "../../shared/config/types.js";
import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { connectClient, type Client } from "../../shared/postgres/client.js";
import { ConnectionWatchdog } from "../../shared/postgres/connectionWatchdog.js";
import { isUndefinedObject } from "../../shared/postgres/sqlStates.js";
import { PgTaskError, type ErrorReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import type { ExecutorParameters } from "../../shared/ipc/executorMessages.js";
import type { FromManager } from "../../shared/ipc/managerMessages.js";
import { Dependencies } from "../dependencies/dependencies.js";
import { LostRemoteRuns } from "../recovery/lostRemoteRuns.js";
import { WakeSignal } from "../../shared/wakeSignal.js";
import { BackendCancellations } from "../sessions/backendCancellations.js";
import { Claimer } from "../claim/claimer.js";
import { connectManager } from "./connection.js";
import { LoginCheck } from "../sessions/loginCheck.js";
import { SessionAccess } from "../sessions/sessionAccess.js";
import { SessionWatchdog } from "../sessions/sessionWatchdog.js";
import { ExecutorThreads } from "../sessions/executorThreads.js";
import { ActiveGroups } from "../groups/groups.js";
import { LargeResultWriter, type LargeResultConnections } from "../results/largeResultWriter.js";
import { LedgerRotation } from "../upkeep/ledgerRotation.js";
import { GroupScanner } from "../groups/groupScanner.js";
import { OrphanRescuer } from "../recovery/orphanRescuer.js";
import { PendingResults } from "../results/pendingResults.js";
import { DeferredPauses } from "../groups/deferredPauses.js";
import { Pruner } from "../upkeep/pruner.js";
import { OwedSuccessors } from "../upkeep/owedSuccessors.js";
import { ClockSteps } from "../upkeep/clockSteps.js";
import { ZoneChanges } from "../upkeep/zoneChanges.js";
import { PipelineRecalls } from "../sessions/pipelineRecalls.js";
import type { RemotePid, StartedTask } from "../model/tasks.js";
import { RetryQueue } from "../results/retryQueue.js";
import { ruleQueryResult } from "../results/ruleQueryResult.js";
import { RunTimes } from "../sessions/runTimes.js";
import { RemoteConnectionCapacity } from "../sessions/remoteConnectionCapacity.js";
import { SessionPool } from "../sessions/sessionPool.js";
import { SessionReserve } from "../sessions/sessionReserve.js";
import type { ManagerSettings, RetryPolicy } from "../model/settings.js";
import { SettingsAge } from "../sessions/settingsAge.js";
import { Statistics } from "../telemetry/statistics.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { CreateTracing } from "../telemetry/loadTracing.js";
import type { Tracing } from "../telemetry/tracing.js";
import { PoolScaler } from "../sessions/poolScaler.js";

/** The components of one manager. They stay when the manager's connection is replaced. */
export interface ManagerComponents {
  readonly table: TaskTable;
  readonly log: Log;
  readonly wakeSignal: WakeSignal;
  readonly groups: ActiveGroups;
  readonly groupScanner: GroupScanner;
  readonly deferredPauses: DeferredPauses;
  readonly claimer: Claimer;
  readonly sessions: SessionPool;
  readonly executors: ExecutorThreads;
  readonly poolScaler: PoolScaler;
  readonly runTimes: RunTimes;
  readonly recalls: PipelineRecalls;
  readonly cancellations: BackendCancellations;
  readonly settingsAge: SettingsAge;
  readonly sessionAccess: SessionAccess;
  readonly loginCheck: LoginCheck;
  readonly sessionWatchdog: SessionWatchdog;
  readonly reserve: SessionReserve;
  readonly remoteCapacity: RemoteConnectionCapacity;
  readonly starts: RetryQueue<StartedTask>;
  readonly remotePids: RetryQueue<RemotePid>;
  readonly pendingResults: PendingResults;
  readonly largeResultWriter: LargeResultWriter;
  readonly orphans: OrphanRescuer;
  readonly lostRemoteRuns: LostRemoteRuns;
  readonly ledgers: LedgerRotation;
  readonly pruner: Pruner;
  readonly zoneChanges: ZoneChanges;
  readonly clockSteps: ClockSteps;
  readonly owed: OwedSuccessors;
  readonly statistics: Statistics;
  readonly dependencies: Dependencies;
  /** Which errors are retried. Throws if the settings have not been read yet. */
  readonly retryPolicy: () => RetryPolicy;
  /** Called with the SQLSTATEs of errors after which tasks are retried. */
  readonly onRetries: (sqlstates: readonly string[]) => void;
  /** Null if no OpenTelemetry SDK is loaded. */
  readonly tracing: Tracing | null;
}

/** The server to which a manager is connected. */
export interface ServerOfManager {
  readonly target: ConnectionTarget;
  readonly start: string | null;
}

/** The values that components read from their manager, and the callbacks by which they report to it. */
export interface ManagerComponentsOptions {
  readonly table: TaskTable;
  /** Returns the current entry (the task table's configuration). */
  readonly entry: () => Entry;
  /** Returns the server's settings, or null before they have been read for the first time. */
  readonly settings: () => ManagerSettings | null;
  /** Whether the manager's role is a superuser. */
  readonly isSuperuser: () => boolean;
  /** Returns the server of the manager's last connection, or null if there was none yet. */
  readonly server: () => ServerOfManager | null;
  /** Called when a new session has reached another server than the manager's connection. */
  readonly serverMoved: (reason: ErrorReport) => void;
  readonly send: (message: FromManager) => void;
  /** Aborted when all executor threads have ended. From then on, no task is running. */
  readonly signal: AbortSignal;
  /** Called when a session or its runs have changed. `urgent` means that the next cycle should not wait. */
  readonly sessionChanged: (urgent: boolean) => void;
  /** Null if no OpenTelemetry SDK is loaded. */
  readonly createTracing: CreateTracing | null;
  /** Called when a function or table that pg-task created is missing. */
  readonly objectMissing: () => void;
  readonly log: Log;
  /** Log for the lines of the executor threads. */
  readonly threadLog: Log;
}

export function createComponents(options: ManagerComponentsOptions): ManagerComponents {
  const { table, entry, settings, send, log } = options;
  const tracing = options.createTracing?.(table, () => options.server()?.target ?? entry().target, log) ?? null;
  const wakeSignal = new WakeSignal();
  const groups = new ActiveGroups();
  const pendingResults = new PendingResults();
  const runTimes = new RunTimes();
  const cancellations = new BackendCancellations();
  const remotePids = new RetryQueue<RemotePid>();
  const starts = new RetryQueue<StartedTask>();
  const maxRuns = (): number => settings()?.run ?? Infinity;
  const executors = new ExecutorThreads({
    parameters: () => executorParameters(options),
    closeMs: () => settings()?.closeMs ?? entry().parameters["pg_work.close"],
    events: {
      message: (thread, message) => {
        if (message.type === "results") largeResultWriter.receive(message.results);
        sessions.receive(thread, message);
      },
      connectionRequest: (thread, message) => {
        if (message.type === "connectionPermitUsed")
          remoteCapacity.endReservation(thread, message.number, message.opened);
        else {
          remoteCapacity.request(thread, message.number);
          wakeSignal.notify();
        }
      },
      ended: (thread, reason) => {
        remoteCapacity.threadEnded(thread);
        sessions.threadEnded(thread, reason);
      },
    },
    log,
    threadLog: options.threadLog,
  });
  const owed = new OwedSuccessors({ table, log });
  const clockSteps = new ClockSteps({ table, log });
  const base = { table, log, owed, clockSteps, groups, pendingResults, runTimes, executors, tracing };
  const sessions = new SessionPool({
    ...base,
    maxThreads: () => entry().parameters["pg_conf.threads"],
    mayUseMore: (groupRuns) => poolScaler.canUseMore && reserve.allows(groupRuns),
    events: {
      changed: options.sessionChanged,
      objectMissing: options.objectMissing,
      result: (result, owner, queued) => {
        if (result.outcome === "released" && result.serverFull === true) remoteCapacity.deferGroup(queued.task.hash);
        pendingResults.add(queued.task.planned === null ? ruleQueryResult(result) : result, owner, queued);
        statistics.runEnded(result, queued.task.planned);
      },
      started: (task) => starts.add(task),
      remote: (process) => remotePids.add(process),
      lost: (task, owner, isCurrent, reason) => {
        groups.addOrphan(task.hash, task.key);
        tracing?.lost(task.id, isCurrent);
        orphans.add({ ...task, owner }, isCurrent, reason);
      },
      silent: (owner, ms) => sessionWatchdog.addSilence(owner, ms),
      opened: () => {
        poolScaler.sessionOpened();
        sessionAccess.accepted();
      },
      openFailed: (reason) => {
        poolScaler.sessionFailed(reason);
        sessionAccess.refused(reason);
        if (reason.code === "CONNECTION_MOVED") options.serverMoved(reason);
        if (isUndefinedObject(reason.sqlState)) options.objectMissing();
      },
      cancel: (cancellation) => cancellations.add(cancellation),
      recall: (recall) => recalls.add(recall),
      permitWanted: (session) => recalls.requestPermit(session),
      permitUnused: (permit) => recalls.revoke(permit),
    },
  });
  const recalls = new PipelineRecalls(sessions.recalls);
  const remoteCapacity = new RemoteConnectionCapacity({ ...base, sessions });
  const deferredPauses = new DeferredPauses(table, log);
  const ledgers = new LedgerRotation(base);
  const groupScanner = new GroupScanner(base);
  const settingsAge = new SettingsAge({ sessions, log });
  const lostRemoteRuns = new LostRemoteRuns({
    isProcessGone: (run) => executors.findRemoteProcess(run),
    onGone: () => wakeSignal.notify(),
    resetMs: () => settings()?.resetMs ?? Infinity,
    log,
  });
  const orphans = new OrphanRescuer({ ...base, deferredPauses, lostRemoteRuns });
  const restartMs = (): number => settings()?.restartMs ?? entry().parameters["pg_work.restart"] * 1000;
  const sessionAccess = new SessionAccess({ send, openSessions: () => sessions.size });
  const poolScaler = new PoolScaler({
    ...base,
    sessions,
    send,
    maxPauseMs: restartMs,
    exclusiveShare: () => claimer.exclusiveShare,
    keptSessions: () => reserve.kept,
    sessionShare: (client) => remoteCapacity.sessionShare(client),
  });
  const setting = (): number => entry().parameters["pg_conf.reserve"];
  const reserve = new SessionReserve({ ...base, sessions, poolScaler, maxRuns, setting });
  const statistics = new Statistics({ send, load: () => ({ running: sessions.busy, sessions: sessions.size }) });
  const largeResultWriter: LargeResultWriter = new LargeResultWriter({
    ...base,
    ...largeResultConnections(options),
    onWritten: () => {
      largeResultWriter.acknowledge();
      wakeSignal.notify();
    },
    onAllWritten: () => {
      for (const thread of executors.threads) executors.send(thread, { type: "largeOutputWritten" });
    },
  });
  const sessionWatchdog = new SessionWatchdog({
    table,
    sessions,
    clearBlame: (owner) => orphans.excuse(owner),
    log,
  });
  const claimer = new Claimer({ ...base, groupScanner, sessions, ledgers, settingsAge });
  return {
    ...base,
    wakeSignal,
    groupScanner,
    deferredPauses,
    claimer,
    sessions,
    poolScaler,
    reserve,
    recalls,
    cancellations,
    settingsAge,
    sessionAccess,
    loginCheck: new LoginCheck({
      access: sessionAccess,
      connect: () => logIn(options),
      pauseMs: restartMs,
      onRefusal: () => wakeSignal.notify(),
      log,
    }),
    sessionWatchdog,
    remoteCapacity,
    starts,
    remotePids,
    largeResultWriter,
    orphans,
    lostRemoteRuns,
    ledgers,
    pruner: new Pruner(base),
    zoneChanges: new ZoneChanges(base),
    clockSteps,
    statistics,
    dependencies: new Dependencies({ ...base, groupScanner, statistics }),
    onRetries: (sqlstates) => statistics.retried(sqlstates),
    retryPolicy: () => retryPolicy(settings()),
  };
}

function retryPolicy(settings: ManagerSettings | null): RetryPolicy {
  if (settings === null) throw new PgTaskError("INTERNAL", "a result was written before the settings were read");
  return settings;
}

/** How large results are written: on a connection of their own, which is watched. */
const largeResultConnections = (options: ManagerComponentsOptions): LargeResultConnections => ({
  connect: (signal) => {
    const entry = options.entry();
    const target = options.server()?.target ?? entry.target;
    return connectManager({ ...entry, target }, signal, applicationNames.managerOutput);
  },
  watch: (client, quietMs) => new ConnectionWatchdog(client, { name: applicationNames.managerWatch, quietMs }),
});

/** Opens a connection to the server of the sessions, as their role. */
const logIn = ({ entry, server, signal }: ManagerComponentsOptions): Promise<Client> =>
  connectClient(server()?.target ?? entry().target, { applicationName: applicationNames.managerLogin, signal });

function executorParameters(options: ManagerComponentsOptions): ExecutorParameters {
  const { table } = options;
  const entry = options.entry();
  const settings = options.settings();
  const server = options.server();
  return {
    target: server?.target ?? entry.target,
    serverStart: server?.start ?? null,
    schema: entry.schema,
    table: entry.table,
    finishFunction: table.qualifiedFinish,
    resetFunction: table.qualifiedReset,
    ledgers: [table.qualifiedLedger1, table.qualifiedLedger2],
    outputLimit: settings?.outputLimit ?? entry.parameters["pg_task.output"],
    isSuperuser: options.isSuperuser(),
    lostRunTimeoutMs: settings?.resetMs ?? 0,
  };
}
