import { isDeepStrictEqual } from "node:util";
import type { Entry, TableLocation } from "../../shared/config/types.js";
import { Condition } from "../../shared/condition.js";
import { PgTaskError, type ErrorReport } from "../../shared/errors.js";
import type { ExecutorParameters } from "../../shared/ipc/executorMessages.js";
import type { Administrator, FromManager, ManagerParameters } from "../../shared/ipc/managerMessages.js";
import type { ManagerMemory } from "../../shared/ipc/sleepingTable.js";
import type { Log } from "../../shared/log.js";
import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { isUndefinedObject } from "../../shared/postgres/sqlStates.js";
import type { ConnectionTarget } from "../../shared/postgres/target/target.js";
import { WakeSignal } from "../../shared/wakeSignal.js";
import { Claimer } from "../claim/claimer.js";
import { RoleLanes } from "../claim/roleLanes.js";
import { Dependencies } from "../dependencies/dependencies.js";
import { DeferredPauses } from "../groups/deferredPauses.js";
import { ActiveGroups } from "../groups/groups.js";
import { GroupScanner } from "../groups/groupScanner.js";
import { Turns } from "../groups/turns.js";
import type { ManagerSettings } from "../model/settings.js";
import { LostRemoteRuns } from "../recovery/lostRemoteRuns.js";
import { OrphanRescuer } from "../recovery/orphanRescuer.js";
import { LargeResultWriter } from "../results/largeResultWriter.js";
import { PendingResults } from "../results/pendingResults.js";
import { RunningRows } from "../results/runningRows.js";
import { logSuspensions } from "../results/logSuspensions.js";
import { ruleQueryResult } from "../results/ruleQueryResult.js";
import { taskTable, type TaskTable } from "../schema/taskTable.js";
import { BackendCancellations } from "../sessions/backendCancellations.js";
import { ExecutorPools } from "../sessions/executorPools.js";
import { ExecutorThreads } from "../sessions/executorThreads.js";
import { PoolScaler } from "../sessions/poolScaler.js";
import { RemoteConnectionCapacity } from "../sessions/remoteConnectionCapacity.js";
import { RoleLogins } from "../sessions/roleLogins.js";
import { RunTimes } from "../sessions/runTimes.js";
import { SessionAccess } from "../sessions/sessionAccess.js";
import { SessionPool } from "../sessions/sessionPool.js";
import { SessionReserve } from "../sessions/sessionReserve.js";
import { SessionWatchdog } from "../sessions/sessionWatchdog.js";
import { SettingsAge } from "../sessions/settingsAge.js";
import { Statistics } from "../telemetry/statistics.js";
import type { CreateTracing, Tracing } from "../telemetry/tracing.js";
import { ClockSteps } from "../upkeep/clockSteps.js";
import { LedgerRotation } from "../upkeep/ledgerRotation.js";
import { OwedSuccessors } from "../upkeep/owedSuccessors.js";
import { Pruner } from "../upkeep/pruner.js";
import { Webhooks } from "../upkeep/webhooks.js";
import { ZoneChanges } from "../upkeep/zoneChanges.js";
import { connectManager } from "./connectManager.js";

export interface ManagerEvents {
  /** A session or its runs have changed. `urgent` means that the next cycle should not wait. */
  sessionChanged(urgent: boolean): void;
  /** A new session has reached another server than the manager's connection. */
  serverMoved(reason: ErrorReport): void;
  objectMissing(): void;
}

export interface ManagerOptions {
  readonly send: (message: FromManager) => void;
  readonly log: Log;
  readonly threadLog: Log;
  /** Null if no OpenTelemetry SDK is loaded. */
  readonly createTracing?: CreateTracing | null;
  /** Called when the manager has nothing to do for long and its table is watched: it has to be stopped. */
  readonly fellAsleep?: (memory: ManagerMemory) => void;
  /** Those of the managers that run in this thread. */
  readonly pools?: ExecutorPools;
}

class ManagerState {
  readonly table: TaskTable;
  readonly send: (message: FromManager) => void;
  readonly log: Log;
  readonly threadLog: Log;
  readonly events: ManagerEvents;
  readonly fellAsleep: (memory: ManagerMemory) => void;
  readonly pools: ExecutorPools;
  readonly tracing: Tracing | null;
  readonly wakeSignal = new WakeSignal();
  /** Checks its predicates again whenever sessions or results change. */
  readonly changes = new Condition();
  /** Aborted when all executor threads have ended. From then on, no task is running. */
  readonly ending = new AbortController();
  /** The current entry (the task table's configuration). Its target never changes. */
  entry: Entry;
  managers: number;
  /** With users: who makes the logins of roles. */
  administrator: Administrator | null;
  readonly circumstances: Pick<ManagerParameters, "afterFrozen" | "sleepsAtOnce" | "staysBriefly">;
  /** The server's settings. Null before they have been read for the first time. */
  settings: ManagerSettings | null = null;
  /** The server of the current connection or, if there is none, of the last one. Null if there was none yet. */
  server: { readonly target: ConnectionTarget; readonly start: string | null } | null = null;
  /** Whether the manager's role is a superuser. Other roles need a password for each remote task. */
  isSuperuser = false;
  /** Whether no more tasks are claimed, on this connection and on later ones. */
  isDraining = false;

  constructor(
    { entry, managers, administrator = null, ...circumstances }: Omit<ManagerParameters, "takesOver">,
    { send, log, threadLog, createTracing, fellAsleep = () => {}, pools = new ExecutorPools() }: ManagerOptions,
    events: ManagerEvents,
  ) {
    this.table = taskTable(entry.schema, entry.table);
    this.entry = entry;
    this.managers = managers;
    this.administrator = administrator;
    this.circumstances = circumstances;
    this.send = send;
    this.log = log;
    this.threadLog = threadLog;
    this.events = events;
    this.fellAsleep = fellAsleep;
    this.pools = pools;
    this.tracing = createTracing?.(this.table, () => this.target, log) ?? null;
  }

  get target(): ConnectionTarget {
    return this.server?.target ?? this.entry.target;
  }

  get knownSettings(): ManagerSettings {
    if (this.settings === null) throw new PgTaskError("INTERNAL", "the settings have not been read yet");
    return this.settings;
  }

  get maxRuns(): number {
    return this.settings?.run ?? Infinity;
  }

  get resetMs(): number {
    return this.settings?.resetMs ?? Infinity;
  }

  get restartMs(): number {
    return this.settings?.restartMs ?? this.entry.parameters["pg_work.restart"] * 1000;
  }

  /** Whether the tasks are in this manager's table. If not, the supervisor is told to replace the manager. */
  isTableAt(location: TableLocation): boolean {
    const { schema, table } = this.table;
    if (location.schema === schema && location.table === table) return true;
    this.send({ type: "tableMoved", location });
    return false;
  }
}

/** The components of one manager, in the order in which they need each other. They stay when its connection is replaced. */
export class ManagerComponents extends ManagerState {
  readonly groups = new ActiveGroups();
  readonly pendingResults = new PendingResults();
  readonly runTimes = new RunTimes();
  readonly cancellations = new BackendCancellations();
  readonly runningRows = new RunningRows(this);
  readonly owed = new OwedSuccessors(this);
  readonly clockSteps = new ClockSteps(this);
  readonly zoneChanges = new ZoneChanges(this);
  readonly pruner = new Pruner(this);
  readonly ledgers = new LedgerRotation(this);
  readonly deferredPauses = new DeferredPauses(this.table, this.log);
  readonly groupScanner = new GroupScanner(this);
  readonly statistics = new Statistics({
    send: this.send,
    load: () => ({
      running: this.sessions.busy,
      overruns: this.sessions.overruns.count,
      sessions: this.sessions.size,
      shares: this.groups.shares?.runningByName ?? {},
    }),
  });
  readonly webhooks = new Webhooks(this);
  readonly dependencies = new Dependencies(this);
  readonly turns = new Turns(this);
  readonly executors: ExecutorThreads = new ExecutorThreads({
    parameters: () => this.#executorParameters(),
    closeMs: () => this.settings?.closeMs ?? this.entry.parameters["pg_work.close"],
    events: {
      message: (thread, message) => {
        if (message.type === "results") this.largeResultWriter.receive(message.results);
        this.sessions.receive(thread, message);
      },
      connectionRequest: (thread, message) => {
        if (message.type === "connectionPermitUsed")
          this.remoteCapacity.endReservation(thread, message.number, message.opened);
        else {
          this.remoteCapacity.request(thread, message.number);
          this.wakeSignal.notify();
        }
      },
      ended: (thread, reason) => {
        this.remoteCapacity.threadEnded(thread);
        this.sessions.threadEnded(thread, reason);
      },
    },
    pools: this.pools,
    log: this.log,
    threadLog: this.threadLog,
  });
  readonly sessions: SessionPool = new SessionPool({
    executors: this.executors,
    groups: this.groups,
    runTimes: this.runTimes,
    maxThreads: () => this.entry.parameters["pg_conf.threads"],
    slowMs: () => this.settings?.slowMs ?? 0,
    mayUseMore: (groupRuns) => this.poolScaler.canUseMore && this.reserve.allows(groupRuns),
    events: {
      changed: (urgent) => this.events.sessionChanged(urgent),
      objectMissing: () => this.events.objectMissing(),
      result: (result, owner, queued) => {
        const { hash, planned } = queued.task;
        if (result.outcome === "released" && result.serverFull === true) this.remoteCapacity.deferGroup(hash);
        this.pendingResults.add(planned === null ? ruleQueryResult(result) : result, owner, queued);
        this.statistics.runEnded(result, planned);
      },
      started: (task) => this.runningRows.starts.add(task),
      remote: (process) => this.runningRows.remotePids.add(process),
      lost: (task, owner, isCurrent, reason) => {
        this.groups.addOrphan(task.hash, task.key);
        this.tracing?.lost(task.id, isCurrent);
        this.orphans.add({ ...task, owner }, isCurrent, reason);
      },
      silent: (owner, ms) => this.sessionWatchdog.addSilence(owner, ms),
      opened: (lane) => {
        if (this.lanes.isUsed) this.lanes.opened(lane);
        else this.poolScaler.sessionOpened();
        this.sessionAccess.accepted();
      },
      openFailed: (reason, lane) => {
        if (this.lanes.isUsed) this.lanes.openFailed(lane, reason);
        else this.poolScaler.sessionFailed(reason);
        if (lane === null) this.sessionAccess.refused(reason);
        if (reason.code === "CONNECTION_MOVED") this.events.serverMoved(reason);
        if (isUndefinedObject(reason.sqlState)) this.events.objectMissing();
      },
      cancel: (cancellation) => this.cancellations.add(cancellation),
    },
    log: this.log,
  });
  readonly remoteCapacity = new RemoteConnectionCapacity(this);
  readonly settingsAge = new SettingsAge(this);
  readonly lostRemoteRuns = new LostRemoteRuns(this);
  readonly orphans = new OrphanRescuer(this);
  readonly sessionAccess = new SessionAccess(this);
  readonly claimer = new Claimer(this);
  readonly poolScaler: PoolScaler = new PoolScaler(this);
  readonly reserve: SessionReserve = new SessionReserve(this);
  readonly roleLogins = new RoleLogins(this);
  readonly lanes: RoleLanes = new RoleLanes(this);
  readonly largeResultWriter: LargeResultWriter = new LargeResultWriter({
    pendingResults: this.pendingResults,
    connect: async (signal) => {
      const entry = { ...this.entry, target: this.target };
      const client = await connectManager(entry, signal, applicationNames.managerOutput);
      logSuspensions(client, this.log);
      return client;
    },
    wakeSignal: this.wakeSignal,
    onAllWritten: () => {
      for (const thread of this.executors.threads) this.executors.send(thread, { type: "largeOutputWritten" });
    },
    log: this.log,
  });
  readonly sessionWatchdog = new SessionWatchdog(this);

  divideShares(): void {
    const { "pg_task.share": setting, "pg_task.weights": weights } = this.entry.parameters;
    const rule = setting === "" ? null : { setting, weights };
    if (isDeepStrictEqual(rule, this.groups.shares?.rule ?? null)) return;
    this.groups.divide(rule, this.sessions.load.current);
  }

  #executorParameters(): ExecutorParameters {
    const { table, entry, settings } = this;
    return {
      target: this.target,
      serverStart: this.server?.start ?? null,
      schema: entry.schema,
      table: entry.table,
      finishFunction: table.qualifiedFinish,
      resetFunction: table.qualifiedReset,
      ledgers: [table.qualifiedLedger1, table.qualifiedLedger2],
      homeTable: table.qualifiedHome,
      outputLimit: settings?.outputLimit ?? entry.parameters["pg_task.output"],
      isSuperuser: this.isSuperuser,
      lostRunTimeoutMs: settings?.resetMs ?? 0,
      ...(this.lanes.isUsed ? { logins: this.roleLogins.all } : undefined),
    };
  }
}
