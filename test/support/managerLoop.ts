import assert from "node:assert/strict";
import { OwedSuccessors } from "../../src/manager/upkeep/owedSuccessors.js";
import { WakeSignal } from "../../src/shared/wakeSignal.js";
import { Claimer } from "../../src/manager/claim/claimer.js";
import { listenToTable } from "../../src/manager/schema/listen.js";
import { ExecutorThreads } from "../../src/manager/sessions/executorThreads.js";
import { ActiveGroups } from "../../src/manager/groups/groups.js";
import { LedgerRotation } from "../../src/manager/upkeep/ledgerRotation.js";
import { GroupScanner } from "../../src/manager/groups/groupScanner.js";
import { OrphanRescuer } from "../../src/manager/recovery/orphanRescuer.js";
import { PendingResults } from "../../src/manager/results/pendingResults.js";
import { DeferredPauses } from "../../src/manager/groups/deferredPauses.js";
import { Pruner } from "../../src/manager/upkeep/pruner.js";
import { ClockSteps } from "../../src/manager/upkeep/clockSteps.js";
import { ZoneChanges } from "../../src/manager/upkeep/zoneChanges.js";
import { PipelineRecalls } from "../../src/manager/sessions/pipelineRecalls.js";
import { RetryQueue } from "../../src/manager/results/retryQueue.js";
import { RunTimes } from "../../src/manager/sessions/runTimes.js";
import { ManagerLoop } from "../../src/manager/loop/managerLoop.js";
import { RemoteConnectionCapacity } from "../../src/manager/sessions/remoteConnectionCapacity.js";
import { LoginCheck } from "../../src/manager/sessions/loginCheck.js";
import { SessionAccess } from "../../src/manager/sessions/sessionAccess.js";
import { SettingsAge } from "../../src/manager/sessions/settingsAge.js";
import { SessionPool } from "../../src/manager/sessions/sessionPool.js";
import { readSettings, type ManagerSettings } from "../../src/manager/model/settings.js";
import { Statistics } from "../../src/manager/telemetry/statistics.js";
import { taskTable } from "../../src/manager/schema/taskTable.js";
import { WorkCycle } from "../../src/manager/loop/workCycle.js";
import { BusyMode, type BusyModeLimits } from "../../src/manager/loop/busyMode.js";
import { availableConnections } from "../../src/manager/sessions/availableConnections.sql.js";
import { PoolScaler } from "../../src/manager/sessions/poolScaler.js";
import type { ConnectionTarget } from "../../src/shared/postgres/target/target.js";
import { connectClient, type Client } from "../../src/shared/postgres/client.js";
import { applicationNames } from "../../src/shared/postgres/applicationNames.js";
import { unreservedStarts } from "./claims.js";
import { noRemoteRuns } from "./noRemoteRuns.js";
import { makeEntry, silentLog as log } from "./taskTables.js";
import { Dependencies } from "../../src/manager/dependencies/dependencies.js";
import { retryPolicy } from "./retryPolicy.js";

/** Replacements for components of the manager loop. All other components are real. */
export interface ManagerLoopOverrides {
  readonly wakeSignal?: WakeSignal;
  readonly workCycle?: typeof WorkCycle;
  readonly poolScaler?: typeof PoolScaler;
  readonly busyMode?: typeof BusyMode;
  readonly pruner?: typeof Pruner;
  readonly limits?: BusyModeLimits;
  /** Replaces the connection with which a manager in deep sleep checks the login. */
  readonly connect?: () => Promise<Client>;
  /** By default, the manager checks the table every millisecond, and enters deep sleep after one check. */
  readonly settings?: Pick<ManagerSettings, "sleepMs" | "idle">;
}

/** Never prunes. Otherwise, the cycle that prunes soon after each task would also find new tasks. */
export class NoPruning extends Pruner {
  override get pauseMs(): number {
    return Infinity;
  }
}

export interface StartedManagerLoop {
  /** Simulates a notification about the table. */
  wake(): void;
  /** Stops the loop. Resolves when it has ended. */
  stop(): Promise<void>;
}

const nothing = (): void => {};

/** Runs a manager loop on the table public.task, without executors. */
export async function startManagerLoop(
  manager: Client,
  target: ConnectionTarget,
  overrides: ManagerLoopOverrides,
): Promise<StartedManagerLoop> {
  const table = taskTable("public", "task");
  const executors = new ExecutorThreads({
    parameters: () => assert.fail("no thread is started"),
    closeMs: () => 1000,
    events: { message: nothing, connectionRequest: nothing, ended: nothing },
    log,
    threadLog: log,
  });
  const events = { changed: nothing, result: nothing, remote: nothing, lost: nothing };
  const others = {
    opened: nothing,
    objectMissing() {},
    openFailed: nothing,
    cancel: nothing,
    started: nothing,
    silent: nothing,
    recall: nothing,
    permitWanted: nothing,
    permitUnused: nothing,
  };
  const groups = new ActiveGroups();
  const runTimes = new RunTimes();
  const sessions = new SessionPool({
    executors,
    groups,
    runTimes,
    maxThreads: () => 1,
    mayUseMore: () => false,
    events: { ...events, ...others },
    log,
  });
  const settingsAge = new SettingsAge({ sessions, log });
  const pendingResults = new PendingResults();
  const pauses = new DeferredPauses(table, log);
  const clockSteps = new ClockSteps({ table, log });
  const groupScanner = new GroupScanner({ table, groups, log, clockSteps });
  const statistics = new Statistics({ send: nothing, load: () => ({ running: 0, sessions: 0 }) });
  const dependencies = new Dependencies({ table, groupScanner, log, statistics });
  const owed = new OwedSuccessors({ table, log });
  const ledgers = new LedgerRotation({ table, log });
  const wakeSignal = overrides.wakeSignal ?? new WakeSignal();
  const { rows } = await manager.query<{ oid: number }>("SELECT 'public.task'::regclass::oid AS oid");
  const settings = await readSettings(manager, makeEntry(target), log);
  const loop = new ManagerLoop(
    manager,
    { ...settings, ...(overrides.settings ?? { sleepMs: 1, idle: 1 }) },
    {
      wakeSignal,
      groups,
      sessions,
      pendingResults,
      ledgers,
      owed,
      remoteCapacity: new RemoteConnectionCapacity({ executors, sessions, groups, log }),
      orphans: new OrphanRescuer({
        table,
        groups,
        deferredPauses: pauses,
        lostRemoteRuns: noRemoteRuns(),
        owed,
        log,
      }),
      workCycle: new (overrides.workCycle ?? WorkCycle)({
        table,
        sessions,
        groups,
        pendingResults,
        owed,
        remotePids: new RetryQueue(),
        recalls: new PipelineRecalls(sessions.recalls),
        deferredPauses: pauses,
        log,
        groupScanner,
        claimer: new Claimer({
          table,
          owed,
          sessions,
          groups,
          groupScanner,
          pendingResults,
          ledgers,
          runTimes,
          settingsAge,
          log,
        }),
        starts: new RetryQueue(),
        retryPolicy: () => retryPolicy,
        onRetries: () => {},
        dependencies,
      }),
      dependencies,
      settingsAge,
      loginCheck: new LoginCheck({
        access: new SessionAccess({ send: nothing, openSessions: () => sessions.size }),
        connect: overrides.connect ?? (() => connectClient(target, { applicationName: applicationNames.managerLogin })),
        pauseMs: () => 0,
        onRefusal: () => wakeSignal.notify(),
        log,
      }),
      poolScaler: new (overrides.poolScaler ?? PoolScaler)({
        sessions,
        executors,
        runTimes,
        send: nothing,
        maxPauseMs: () => 1,
        sessionShare: availableConnections,
        exclusiveShare: () => 0,
        keptSessions: () => 0,
        log,
      }),
      reserve: { starts: unreservedStarts(Infinity), kept: 0 },
      zoneChanges: new ZoneChanges({ table, log }),
      clockSteps,
      pruner: new (overrides.pruner ?? Pruner)({ table, log }),
      statistics,
      busyMode: new (overrides.busyMode ?? BusyMode)(manager, rows[0]?.oid ?? 0, overrides.limits),
      homeGuard: { isHeld: false, mayStart: () => Promise.resolve(true) },
      otherManagers: { watchOwners: nothing },
      runTimes,
    },
  );
  manager.on("notification", () => loop.receiveNotification());
  await listenToTable(manager, table);
  let over = false;
  const work = loop.run(() => over, {
    began: nothing,
    asks: nothing,
    cycled: nothing,
    handOver: () => Promise.resolve(),
    released: nothing,
  });
  return {
    wake: () => loop.receiveNotification(),
    async stop() {
      over = true;
      wakeSignal.notify();
      await work;
    },
  };
}
