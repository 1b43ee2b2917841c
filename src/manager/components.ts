import type { Entry } from "../shared/config/types.js";
import { ConnectionWatchdog } from "../shared/postgres/connectionWatchdog.js";
import type { Log } from "../shared/log.js";
import type { ExecutorParameters, FromManager } from "../shared/ipc/messages.js";
import { LostRemoteRuns } from "./recovery/lostRemoteRuns.js";
import { WakeSignal } from "../shared/wakeSignal.js";
import { BackendCancellations } from "./sessions/backendCancellations.js";
import { Claimer } from "./claim/claimer.js";
import { connectManager } from "./connection.js";
import { SessionWatchdog } from "./sessions/sessionWatchdog.js";
import { ExecutorThreads } from "./sessions/executorThreads.js";
import { ActiveGroups } from "./groups/groups.js";
import { LargeResultWriter } from "./results/largeResultWriter.js";
import { LedgerRotation } from "./upkeep/ledgerRotation.js";
import { GroupScanner } from "./groups/groupScanner.js";
import { OrphanRescuer } from "./recovery/orphanRescuer.js";
import { PendingResults } from "./results/pendingResults.js";
import { DeferredPauses } from "./groups/deferredPauses.js";
import { Pruner } from "./upkeep/pruner.js";
import { Recalls } from "./sessions/recalls.js";
import { RemotePids } from "./results/remotePids.js";
import { RunTimes } from "./sessions/runTimes.js";
import { ServerConnectionLimit } from "./sessions/serverConnectionLimit.js";
import type { SessionPoolEvents } from "./sessions/session.js";
import { SessionPool } from "./sessions/sessionPool.js";
import type { ManagerSettings } from "./settings.js";
import { SettingsAge } from "./sessions/settingsAge.js";
import { StallMonitor } from "./telemetry/stallMonitor.js";
import { Starts } from "./results/starts.js";
import { Statistics } from "./telemetry/statistics.js";
import type { TaskTable } from "./schema/taskTable.js";
import { Tracing } from "./telemetry/tracing.js";
import { WorkCycle } from "./loop/workCycle.js";
import { PoolScaler } from "./sessions/poolScaler.js";

/** What a manager consists of, for as long as it lives, whatever becomes of its connection. */
export interface ManagerComponents {
  readonly bell: WakeSignal;
  readonly groups: ActiveGroups;
  readonly outbox: PendingResults;
  readonly runTimes: RunTimes;
  readonly cancellations: BackendCancellations;
  readonly executors: ExecutorThreads;
  readonly sessions: SessionPool;
  readonly ledgers: LedgerRotation;
  readonly orphans: OrphanRescuer;
  readonly workforce: PoolScaler;
  readonly serverRoom: ServerConnectionLimit;
  readonly statistics: Statistics;
  readonly pruning: Pruner;
  readonly large: LargeResultWriter;
  readonly recalls: Recalls;
  readonly turn: WorkCycle;
  readonly settingsAge: SettingsAge;
  readonly stalls: StallMonitor;
  readonly cutOff: SessionWatchdog;
  /** Null unless an OpenTelemetry SDK is loaded. */
  readonly tracing: Tracing | null;
}

/** What parts ask their manager at any time, and tell it. */
export interface ManagerComponentsOptions {
  readonly table: TaskTable;
  /** With the parameters it was given last. */
  readonly entry: () => Entry;
  /** Null before they were first read. */
  readonly settings: () => ManagerSettings | null;
  /** Whether the connection's user is one. */
  readonly superuser: () => boolean;
  readonly send: (message: FromManager) => void;
  /** Something became of a session, or of what it runs; urgent where a turn should not wait. */
  readonly changed: (urgent: boolean) => void;
  /** Something that pg-task made beside the table is missing. */
  readonly lacking: () => void;
  readonly log: Log;
  /** The executor threads'. */
  readonly threadLog: Log;
}

export function createComponents(options: ManagerComponentsOptions): ManagerComponents {
  const { table, entry, settings, send, log } = options;
  const bell = new WakeSignal();
  const groups = new ActiveGroups();
  const outbox = new PendingResults();
  const runTimes = new RunTimes();
  const cancellations = new BackendCancellations();
  const remotePids = new RemotePids();
  const starts = new Starts();
  const executors = new ExecutorThreads({
    parameters: () => executorParameters(options),
    closeMs: () => settings()?.closeMs ?? entry().parameters["pg_work.close"],
    events: {
      message: (thread, message) => {
        if (message.type === "results") large.received(message.results);
        sessions.receive(thread, message);
      },
      room: (thread, message) => {
        if (message.type === "entered") serverRoom.entered(thread, message.number, message.open);
        else {
          serverRoom.ask(thread, message.number);
          bell.notify();
        }
      },
      ended: (thread, reason) => {
        serverRoom.threadEnded(thread);
        sessions.threadEnded(thread, reason);
      },
    },
    log,
    threadLog: options.threadLog,
  });
  const events: SessionPoolEvents = {
    changed: options.changed,
    result: (result, owner, task) => {
      if (result.outcome === "returned" && result.crowded === true) serverRoom.crowded(task.hash);
      outbox.add(result, owner, task);
      statistics.ended(result);
    },
    started: (task) => starts.add(task),
    remote: (place) => remotePids.add(place),
    lost: (task, owner, front) => {
      groups.begin(task.hash);
      tracing?.lost(task.id, front);
      orphans.lost({ ...task, owner }, front);
    },
    silent: (owner, ms) => cutOff.hear(owner, ms),
    opened: () => workforce.succeeded(),
    unopened: (reason) => {
      workforce.refused(reason.message);
      if (reason.sqlState === "42883" || reason.sqlState === "42P01") options.lacking();
    },
    lacking: () => options.lacking(),
    cancel: (cancellation) => cancellations.add(cancellation),
    recall: (recall) => recalls.add(recall),
    permit: (session) => recalls.wantPermit(session),
    revoke: (permit) => recalls.revoke(permit),
  };
  const maxThreads = (): number => entry().parameters["pg_conf.threads"];
  const mayUseMore = (): boolean =>
    workforce.mayUseMore && groups.total < (settings()?.run ?? Infinity);
  const sessions = new SessionPool({
    executors,
    groups,
    runTimes,
    maxThreads,
    mayUseMore,
    events,
    log,
  });
  const recalls = new Recalls(sessions);
  const serverRoom = new ServerConnectionLimit({ executors, sessions, groups, log });
  const pauses = new DeferredPauses(table, log);
  const ledgers = new LedgerRotation({ table, log });
  const abroad = new LostRemoteRuns({
    seek: (run) => executors.seek(run),
    changed: () => bell.notify(),
    resetMs: () => settings()?.resetMs ?? Infinity,
    log,
  });
  const orphans = new OrphanRescuer({ table, groups, pauses, abroad, log });
  const workforce = new PoolScaler({
    sessions,
    executors,
    runTimes,
    send,
    longestPauseMs: () => settings()?.restartMs ?? entry().parameters["pg_work.restart"] * 1000,
    share: (room) => serverRoom.forSessions(room),
    log,
  });
  const statistics = new Statistics({
    send,
    now: () => ({ running: sessions.busy, sessions: sessions.size }),
  });
  const large = new LargeResultWriter({
    outbox,
    connect: (signal) => connectManager(entry(), signal, "pg_work output"),
    watch: (client, quietMs) =>
      new ConnectionWatchdog(client, entry().target, { name: "pg_work watch", quietMs }),
    written: () => {
      large.ask();
      bell.notify();
    },
    more: () => {
      for (const thread of executors.threads) executors.tell(thread, { type: "written" });
    },
    log,
  });
  const tracing = Tracing.begin(table, entry().target, log);
  const lookout = new GroupScanner({ table, groups, log });
  const settingsAge = new SettingsAge({ sessions, log });
  const claiming = new Claimer({
    table,
    sessions,
    groups,
    outbox,
    ledgers,
    runTimes,
    settingsAge,
    tracing,
    log,
  });
  const turn = new WorkCycle({
    table,
    sessions,
    groups,
    outbox,
    remotePids,
    recalls,
    pauses,
    lookout,
    claiming,
    starts,
    large,
    tracing,
    log,
  });
  const cutOff = new SessionWatchdog({
    table,
    sessions,
    excuse: (owner) => orphans.excuse(owner),
    log,
  });
  return {
    bell,
    groups,
    outbox,
    runTimes,
    cancellations,
    executors,
    sessions,
    ledgers,
    orphans,
    workforce,
    serverRoom,
    statistics,
    pruning: new Pruner({ table, log }),
    large,
    recalls,
    turn,
    settingsAge,
    stalls: new StallMonitor({
      table,
      sessions,
      groups,
      orphans,
      outbox,
      claiming,
      workforce,
      lookout,
      mostRuns: () => settings()?.run ?? Infinity,
      send,
      log,
    }),
    cutOff,
    tracing,
  };
}

function executorParameters(options: ManagerComponentsOptions): ExecutorParameters {
  const { table } = options;
  const entry = options.entry();
  const settings = options.settings();
  return {
    target: entry.target,
    schema: entry.schema,
    table: entry.table,
    finish: table.qualifiedFinish,
    reset: table.qualifiedReset,
    ledgers: [table.qualifiedLedger1, table.qualifiedLedger2],
    outputLimit: settings?.outputLimit ?? entry.parameters["pg_task.output"],
    superuser: options.superuser(),
    resetMs: settings?.resetMs ?? 0,
  };
}
