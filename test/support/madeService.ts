import assert from "node:assert/strict";
import { WakeSignal } from "../../src/shared/wakeSignal.js";
import { Claimer } from "../../src/manager/claim/claimer.js";
import { listen } from "../../src/manager/connection.js";
import { ExecutorThreads } from "../../src/manager/sessions/executorThreads.js";
import { ActiveGroups } from "../../src/manager/groups/groups.js";
import { LedgerRotation } from "../../src/manager/upkeep/ledgerRotation.js";
import { GroupScanner } from "../../src/manager/groups/groupScanner.js";
import { OrphanRescuer } from "../../src/manager/recovery/orphanRescuer.js";
import { PendingResults } from "../../src/manager/results/pendingResults.js";
import { DeferredPauses } from "../../src/manager/groups/deferredPauses.js";
import { Pruner } from "../../src/manager/upkeep/pruner.js";
import { Recalls } from "../../src/manager/sessions/recalls.js";
import { RemotePids } from "../../src/manager/results/remotePids.js";
import { RunTimes } from "../../src/manager/sessions/runTimes.js";
import { ManagerLoop } from "../../src/manager/loop/managerLoop.js";
import { ServerConnectionLimit } from "../../src/manager/sessions/serverConnectionLimit.js";
import { SettingsAge } from "../../src/manager/sessions/settingsAge.js";
import { SessionPool } from "../../src/manager/sessions/sessionPool.js";
import { readSettings, type ManagerSettings } from "../../src/manager/settings.js";
import { Starts } from "../../src/manager/results/starts.js";
import { Statistics } from "../../src/manager/telemetry/statistics.js";
import { taskTable } from "../../src/manager/schema/taskTable.js";
import { WorkCycle } from "../../src/manager/loop/workCycle.js";
import { WakeUps, type WakeUpLimits } from "../../src/manager/loop/wakeUps.js";
import { PoolScaler } from "../../src/manager/sessions/poolScaler.js";
import type { ConnectionTarget } from "../../src/shared/config/types.js";
import type { Client } from "../../src/shared/postgres/client.js";
import { nobodyAbroad } from "./nobodyAbroad.js";
import { makeEntry, silentLog as log } from "./taskTables.js";

/** What stands in for a part of the manager's; the others are the manager's own. */
export interface StandIns {
  readonly bell?: WakeSignal;
  readonly turn?: typeof WorkCycle;
  readonly workforce?: typeof PoolScaler;
  readonly wakeUps?: typeof WakeUps;
  readonly pruning?: typeof Pruner;
  readonly limits?: WakeUpLimits;
  /** Unless given, it sleeps deeply after one check, and checks every millisecond before that. */
  readonly settings?: Pick<ManagerSettings, "sleepMs" | "idle">;
}

/** Never removes anything: its look for that, soon after each task, is one that finds new tasks too. */
export class NoPruning extends Pruner {
  override get pauseMs(): number {
    return Infinity;
  }
}

export interface MadeService {
  /** Tells it that something happened to the table. */
  wake(): void;
  /** Resolves when it works no more. */
  stop(): Promise<void>;
}

const nothing = (): void => {};

/** A manager's service at work on the table public.task, without any executor. */
export async function startService(
  manager: Client,
  target: ConnectionTarget,
  standIns: StandIns,
): Promise<MadeService> {
  const table = taskTable("public", "task");
  const executors = new ExecutorThreads({
    parameters: () => assert.fail("no thread is started"),
    closeMs: () => 1000,
    events: { message: nothing, room: nothing, ended: nothing },
    log,
    threadLog: log,
  });
  const events = { changed: nothing, result: nothing, remote: nothing, lost: nothing };
  const others = {
    opened: nothing,
    lacking() {},
    unopened: nothing,
    cancel: nothing,
    started: nothing,
    silent: nothing,
    recall: nothing,
    permit: nothing,
    revoke: nothing,
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
  const outbox = new PendingResults();
  const pauses = new DeferredPauses(table, log);
  const ledgers = new LedgerRotation({ table, log });
  const bell = standIns.bell ?? new WakeSignal();
  const { rows } = await manager.query<{ oid: number }>(
    "SELECT 'public.task'::regclass::oid AS oid",
  );
  const settings = await readSettings(manager, makeEntry(target), log);
  const service = new ManagerLoop(
    manager,
    { ...settings, ...(standIns.settings ?? { sleepMs: 1, idle: 1 }) },
    {
      bell,
      groups,
      sessions,
      outbox,
      ledgers,
      serverRoom: new ServerConnectionLimit({ executors, sessions, groups, log }),
      orphans: new OrphanRescuer({ table, groups, pauses, abroad: nobodyAbroad(), log }),
      turn: new (standIns.turn ?? WorkCycle)({
        table,
        sessions,
        groups,
        outbox,
        remotePids: new RemotePids(),
        recalls: new Recalls(sessions),
        pauses,
        log,
        lookout: new GroupScanner({ table, groups, log }),
        claiming: new Claimer({
          table,
          sessions,
          groups,
          outbox,
          ledgers,
          runTimes,
          settingsAge,
          log,
        }),
        starts: new Starts(),
      }),
      settingsAge,
      workforce: new (standIns.workforce ?? PoolScaler)({
        sessions,
        executors,
        runTimes,
        send: nothing,
        longestPauseMs: () => 1,
        share: (room) => room,
        log,
      }),
      pruning: new (standIns.pruning ?? Pruner)({ table, log }),
      statistics: new Statistics({ send: nothing, now: () => ({ running: 0, sessions: 0 }) }),
      wakeUps: new (standIns.wakeUps ?? WakeUps)(manager, rows[0]?.oid ?? 0, standIns.limits),
      runTimes,
    },
  );
  manager.on("notification", () => service.hear());
  await listen(manager, table);
  let over = false;
  const work = service.run(() => over, {
    began: nothing,
    worked: nothing,
    handOver: () => Promise.resolve(),
    released: nothing,
  });
  return {
    wake: () => service.hear(),
    async stop() {
      over = true;
      bell.notify();
      await work;
    },
  };
}
