import assert from "node:assert/strict";
import { Bell } from "../../src/shared/wakeSignal.js";
import { Claiming } from "../../src/manager/claim/claimer.js";
import { listen } from "../../src/manager/connection.js";
import { Executors } from "../../src/manager/sessions/executorThreads.js";
import { Groups } from "../../src/manager/groups/groups.js";
import { Ledgers } from "../../src/manager/upkeep/ledgerRotation.js";
import { Lookout } from "../../src/manager/groups/groupScanner.js";
import { Orphans } from "../../src/manager/recovery/orphanRescuer.js";
import { Outbox } from "../../src/manager/results/pendingResults.js";
import { Pauses } from "../../src/manager/groups/deferredPauses.js";
import { Pruning } from "../../src/manager/upkeep/pruner.js";
import { Recalls } from "../../src/manager/sessions/recalls.js";
import { RemotePids } from "../../src/manager/results/remotePids.js";
import { RunTimes } from "../../src/manager/sessions/runTimes.js";
import { Service } from "../../src/manager/loop/managerLoop.js";
import { ServerRoom } from "../../src/manager/sessions/serverConnectionLimit.js";
import { SettingsAge } from "../../src/manager/sessions/settingsAge.js";
import { Sessions } from "../../src/manager/sessions/sessionPool.js";
import { readSettings, type ManagerSettings } from "../../src/manager/settings.js";
import { Starts } from "../../src/manager/results/starts.js";
import { Statistics } from "../../src/manager/telemetry/statistics.js";
import { taskTable } from "../../src/manager/schema/taskTable.js";
import { Turn } from "../../src/manager/loop/workCycle.js";
import { WakeUps, type WakeUpLimits } from "../../src/manager/loop/wakeUps.js";
import { Workforce } from "../../src/manager/sessions/poolScaler.js";
import type { ConnectionTarget } from "../../src/shared/config/types.js";
import type { Client } from "../../src/shared/postgres/client.js";
import { nobodyAbroad } from "./nobodyAbroad.js";
import { makeEntry, silentLog as log } from "./taskTables.js";

/** What stands in for a part of the manager's; the others are the manager's own. */
export interface StandIns {
  readonly bell?: Bell;
  readonly turn?: typeof Turn;
  readonly workforce?: typeof Workforce;
  readonly wakeUps?: typeof WakeUps;
  readonly pruning?: typeof Pruning;
  readonly limits?: WakeUpLimits;
  /** Unless given, it sleeps deeply after one check, and checks every millisecond before that. */
  readonly settings?: Pick<ManagerSettings, "sleepMs" | "idle">;
}

/** Never removes anything: its look for that, soon after each task, is one that finds new tasks too. */
export class NoPruning extends Pruning {
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
  const executors = new Executors({
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
  const groups = new Groups();
  const runTimes = new RunTimes();
  const sessions = new Sessions({
    executors,
    groups,
    runTimes,
    maxThreads: () => 1,
    mayUseMore: () => false,
    events: { ...events, ...others },
    log,
  });
  const settingsAge = new SettingsAge({ sessions, log });
  const outbox = new Outbox();
  const pauses = new Pauses(table, log);
  const ledgers = new Ledgers({ table, log });
  const bell = standIns.bell ?? new Bell();
  const { rows } = await manager.query<{ oid: number }>(
    "SELECT 'public.task'::regclass::oid AS oid",
  );
  const settings = await readSettings(manager, makeEntry(target), log);
  const service = new Service(
    manager,
    { ...settings, ...(standIns.settings ?? { sleepMs: 1, idle: 1 }) },
    {
      bell,
      groups,
      sessions,
      outbox,
      ledgers,
      serverRoom: new ServerRoom({ executors, sessions, groups, log }),
      orphans: new Orphans({ table, groups, pauses, abroad: nobodyAbroad(), log }),
      turn: new (standIns.turn ?? Turn)({
        table,
        sessions,
        groups,
        outbox,
        remotePids: new RemotePids(),
        recalls: new Recalls(sessions),
        pauses,
        log,
        lookout: new Lookout({ table, groups, log }),
        claiming: new Claiming({
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
      workforce: new (standIns.workforce ?? Workforce)({
        sessions,
        executors,
        runTimes,
        send: nothing,
        longestPauseMs: () => 1,
        share: (room) => room,
        log,
      }),
      pruning: new (standIns.pruning ?? Pruning)({ table, log }),
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
      bell.ring();
      await work;
    },
  };
}
