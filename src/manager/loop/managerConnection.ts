import { sleep } from "../../shared/backoff.js";
import type { Condition } from "../../shared/condition.js";
import { logInvalidSettings } from "../../shared/config/serverSettings.js";
import type { Entry, TableLocation } from "../../shared/config/types.js";
import { fromReport, isConnectionLoss, type ErrorReport } from "../../shared/errors.js";
import type { FromManager } from "../../shared/ipc/managerMessages.js";
import { applicationNames } from "../../shared/postgres/applicationNames.js";
import { connectionLost, disconnect, serverOf, type Client } from "../../shared/postgres/client.js";
import { ConnectionWatchdog } from "../../shared/postgres/connectionWatchdog.js";
import type { ManagerComponents, ServerOfManager } from "./components.js";
import { connectManager, readIdentity, setApplicationName, tryLock, unlock } from "./connection.js";
import { isRollCall } from "../../shared/postgres/rollCall.js";
import { OtherManagers } from "../recovery/otherManagers.js";
import { discardUnconfirmed } from "../recovery/discardUnconfirmed.js";
import { ensureTable, explainError } from "../schema/ensureTable.js";
import { homeChanged } from "../schema/home.js";
import { logWriters } from "../schema/grants.js";
import { listenToTable } from "../schema/listen.js";
import { locateTable } from "../schema/locateTable.js";
import { placeOf } from "../schema/movedTable.js";
import { readSettings, type ManagerSettings } from "../model/settings.js";
import { logUnknownZones } from "../schema/unknownZones.js";
import type { StallMonitor } from "../stalls/stallMonitor.js";
import { PartitionWatcher } from "../upkeep/partitionWatcher.js";
import { ManagerLoop } from "./managerLoop.js";
import { BusyMode } from "./busyMode.js";
import { HomeGuard } from "./homeGuard.js";
import type { WorkCycle } from "./workCycle.js";
import { lockRetryMs, managerQuietMs, sleeperQuietMs } from "../model/tuning.js";

/**
 * The time after which another manager that still holds the table's lock is named in the log, in ms. A manager that stops
 * hands its table over within a second or two, unless a lock keeps it from writing results.
 */
const longWaitMs = 10_000;

/** The values that the connection reads from its manager, and the callbacks by which it reports to the manager. */
export interface ManagerConnectionOptions {
  readonly components: ManagerComponents;
  readonly workCycle: WorkCycle;
  readonly stallMonitor: StallMonitor;
  /** Returns the current entry (the task table's configuration). */
  readonly entry: () => Entry;
  /** Returns the server's settings, or null before they have been read for the first time. */
  readonly settings: () => ManagerSettings | null;
  readonly settingsRead: (settings: ManagerSettings) => void;
  /** Receives the current location of the tasks. Returns false if they are in another table than the manager's. */
  readonly tableLocated: (location: TableLocation) => boolean;
  /** Applies changed parameters and creates missing objects, on a separate connection. */
  readonly reload: () => void;
  /** Called after each cycle. */
  readonly cycled: () => void;
  readonly isFinished: () => boolean;
  /** Returns how many managers the process has. */
  readonly managers: () => number;
  /** A condition that checks its predicates again whenever sessions or results change. */
  readonly changes: Condition;
  /** Whether the leader before this process was frozen. */
  readonly afterFrozen: boolean;
  readonly send: (message: FromManager) => void;
  /** Aborted when all executor threads have ended. From then on, no task is running. */
  readonly signal: AbortSignal;
}

/**
 * The manager's connection and everything that depends on it: the table lock and the manager loop. There is only one
 * connection at a time, and each call of `serve` opens a new connection. The table lock is lost with the connection.
 *
 *   connect ─▶ locate the table ─▶ create or migrate it ─▶ lock it ─▶ LISTEN, run the loop ─▶ disconnect
 *                   │                                       ▲  │
 *                   │                                       └──┘ another manager has the lock
 *                   └─another table: await replacement
 */
export class ManagerConnection {
  readonly #options: ManagerConnectionOptions;
  #client: Client | null = null;
  #loop: ManagerLoop | null = null;
  #homeGuard: HomeGuard | null = null;
  #watchdog: ConnectionWatchdog | null = null;
  #isSuperuser = false;
  #server: ServerOfManager | null = null;
  /** Why this manager has ended its connection by itself. */
  #leaveReason: ErrorReport | null = null;
  #isDraining = false;
  #others: OtherManagers | null = null;

  constructor(options: ManagerConnectionOptions) {
    this.#options = options;
  }

  /** Whether the manager loop is running. */
  get isServing(): boolean {
    return this.#loop !== null;
  }

  /** Whether the server may be claiming tasks for this manager, or its answer may be under way. */
  get mayClaim(): boolean {
    return this.#loop?.mayClaim ?? false;
  }

  /** Whether the manager's role is a superuser. Other roles need a password for each remote task. */
  get isSuperuser(): boolean {
    return this.#isSuperuser;
  }

  /** The server of the current connection or, if there is none, of the last one. */
  get server(): ServerOfManager | null {
    return this.#server;
  }

  /** Ends the connection for this reason, so that the manager connects again. */
  leave(reason: ErrorReport): void {
    if (this.#client === null) return;
    this.#leaveReason = reason;
    this.#client.connection.stream.destroy();
  }

  /** Finds out whether the connection has been cut. */
  probe(): void {
    this.#watchdog?.probeNow();
  }

  /** Has the loop find out whether the table has become a copy. */
  doubtHome(): void {
    this.#homeGuard?.doubt();
  }

  /** Stops claiming tasks, on this connection and on later ones. */
  drain(): void {
    this.#isDraining = true;
    this.#loop?.drain();
  }

  reconfigure(settings: ManagerSettings): void {
    this.#loop?.reconfigure(settings);
  }

  setApplicationName(sleepMs: number): void {
    if (this.#client === null) return;
    // The error can be ignored here, because it ends the connection and the next connection gets the new name anyway.
    setApplicationName(this.#client, this.#options.entry(), sleepMs).catch(() => {});
  }

  /**
   * Connects, locks the table, and serves it until the manager's work is finished.
   *
   * @param succeeded called after each cycle
   * @throws errors of the server and the network; the connection is closed in that case
   */
  async serve(succeeded: () => void): Promise<void> {
    const { components, entry: currentEntry, changes, signal, tableLocated } = this.#options;
    const { log, wakeSignal, sessionWatchdog } = components;
    const entry = currentEntry();
    const client = await connectManager(entry, signal);
    components.sessionAccess.accepted();
    const ended = new AbortController();
    try {
      let isLost = false;
      const lost = new Promise<never>((_, reject) => {
        client.once("end", () => {
          isLost = true;
          wakeSignal.notify();
          reject(connectionLost(client, "the manager's"));
        });
      });
      lost.catch(() => {});
      if (!tableLocated(await locateTable(client, entry, logInvalidSettings(log)))) {
        await changes.until(() => false, signal);
        return;
      }
      this.#watchdog = new ConnectionWatchdog(client, {
        name: applicationNames.managerWatch,
        quietMs: managerQuietMs,
        restMs: () => this.#quietAtRestMs(),
      });
      const runLoop = await this.#prepare(client, entry, succeeded);
      // A cycle without statements would not notice the loss, and the loop would compete with the next one.
      const { isFinished } = this.#options;
      const loopEnded = runLoop(() => isLost || isFinished());
      await Promise.race([
        loopEnded.then(async () => (isLost ? await lost : undefined)),
        sessionWatchdog.watch(client, ended.signal),
        this.#options.stallMonitor.watch(client, ended.signal, () =>
          this.#isDraining || this.#homeGuard?.isHeld === true ? null : this.#loop,
        ),
        lost,
      ]);
    } catch (error) {
      // If something is sent after the server's last message, but before the end of the connection is noticed, the
      // driver reports an error of its own. Report why the connection was lost instead.
      const reason = this.#leaveReason;
      this.#leaveReason = null;
      if (reason !== null) throw fromReport(reason);
      if (isConnectionLoss(error)) throw connectionLost(client, "the manager's");
      throw await explainError(client, components.table, error);
    } finally {
      ended.abort();
      this.#watchdog?.stop();
      this.#watchdog = null;
      await this.#end(client);
    }
  }

  /** Returns the silence after which a connection is probed whose loss would not be felt at once. */
  #quietAtRestMs(): number | null {
    if (this.#loop === null) return sleeperQuietMs(1);
    return this.#loop.isAsleep ? sleeperQuietMs(this.#options.managers()) : null;
  }

  /**
   * Does everything that comes before the loop.
   *
   * @returns a function that runs the loop until its argument returns true
   */
  async #prepare(
    client: Client,
    entry: Entry,
    succeeded: () => void,
  ): Promise<(isFinished: () => boolean) => Promise<void>> {
    const { components, entry: currentEntry, reload, send } = this.#options;
    const { cancellations, log, pendingResults, recalls, sessions, table } = components;
    const settings = await this.#readSettings(client, entry);
    // A draining manager only writes results. It creates nothing and needs no lock, and another manager may already
    // serve the table.
    const previousOid = table.servedOid;
    const knownOid = this.#isDraining ? previousOid : null;
    const oid = (table.servedOid = knownOid ?? (await ensureTable(client, table, entry, log)));
    if (previousOid !== null && previousOid !== oid) {
      const before = (await placeOf(client, previousOid)) ?? "dropped";
      log.warn(
        { table: table.logName, before },
        "another table has this name now, without the tasks of the one before",
      );
    }
    if (knownOid === null) await logUnknownZones(client, table, entry.parameters["pg_task.zone"], log);
    if (previousOid !== oid) await logWriters(client, table, log);
    const others = await this.#attachOthers(client, oid);
    const isLocked = await this.#lock(client, oid, others);
    components.groups.forgetStarts();
    recalls.attach(isLocked);
    await discardUnconfirmed(client, table, sessions, pendingResults);
    const homeGuard = new HomeGuard(client, {
      ...components,
      entry: currentEntry,
      resetMs: () => this.#options.settings()?.resetMs ?? Infinity,
      send,
    });
    const loop = new ManagerLoop(client, settings, {
      ...components,
      workCycle: this.#options.workCycle,
      busyMode: new BusyMode(client, oid),
      homeGuard,
      otherManagers: others,
    });
    client.on("notification", ({ payload }) => {
      if (payload === homeChanged) homeGuard.doubt();
      else if (!isRollCall(payload)) loop.receiveNotification();
    });
    await listenToTable(client, table);
    this.#loop = loop;
    this.#homeGuard = homeGuard;
    this.#client = client;
    if (this.#isDraining) loop.drain();
    // The manager was reconfigured while this connection was being prepared.
    if (currentEntry() !== entry) reload();
    cancellations.attach(client, (done) => sessions.confirmCancel(done));
    const partitions = this.#watchPartitions();
    return async (isFinished) =>
      await loop.run(isFinished, {
        began: () => {
          log.info({ table: table.logName, sleepMs: settings.sleepMs }, "serving table");
          send({ type: "ready" });
        },
        asks: () => this.#watchdog?.expectAnswer(),
        cycled: () => {
          succeeded();
          this.#options.cycled();
          if (this.#isDraining) return;
          partitions.check(client);
          homeGuard.check();
        },
        handOver: async () => {
          if (isLocked) await unlock(client, oid);
        },
        released: () => send({ type: "claimingStopped" }),
      });
  }

  async #readSettings(client: Client, entry: Entry): Promise<ManagerSettings> {
    const { components, settingsRead } = this.#options;
    const { isSuperuser, serverStart } = await readIdentity(client);
    this.#isSuperuser = isSuperuser;
    this.#server = { target: serverOf(client), start: serverStart };
    const settings = await readSettings(client, entry, components.log);
    settingsRead(settings);
    components.statistics.connected();
    await setApplicationName(client, entry, settings.sleepMs);
    return settings;
  }

  /**
   * Waits for the table lock.
   *
   * @returns false if the manager is draining and does not have the lock
   */
  async #lock(client: Client, oid: number, others: OtherManagers): Promise<boolean> {
    const { components, send, signal } = this.#options;
    let waitedMs = 0;
    for (let tries = 0; !this.#isDraining; tries += 1) {
      if (await tryLock(client, oid)) return true;
      if (tries === 0) {
        const message = "another manager holds the lock of the table, waiting";
        components.log.info({ table: components.table.logName }, message);
        send({ type: "unavailable", reason: { code: "LEADERSHIP_HELD", message } });
      }
      if (!(await sleep(lockRetryMs, signal))) continue;
      await others.checkHolder(lockRetryMs);
      waitedMs += lockRetryMs;
      if (waitedMs === longWaitMs) await this.#logHolder(others);
    }
    return false;
  }

  async #logHolder(others: OtherManagers): Promise<void> {
    const { log, table } = this.#options.components;
    const holder = await others.findHolder();
    // A session that is no manager has been named already.
    if (holder?.isPgTask !== true) return;
    const { pid: backend, name, address } = holder;
    const remedy =
      "end one of the two: this is probably another pg-task with the same entry, and another control database or pg_conf.name";
    log.warn({ table: table.logName, backend, application: name, address, remedy }, "another manager keeps the table");
  }

  async #attachOthers(client: Client, oid: number): Promise<OtherManagers> {
    const { components, entry, afterFrozen } = this.#options;
    this.#others = await OtherManagers.attach(client, {
      oid,
      afterFrozen,
      frozenMs: () => entry().parameters["pg_conf.frozen"],
      isPresent: () => this.#loop !== null,
      orphans: components.orphans,
      fields: { table: components.table.qualified },
      log: components.log,
    });
    return this.#others;
  }

  #watchPartitions(): PartitionWatcher {
    const { components, entry, reload, settings } = this.#options;
    return new PartitionWatcher({
      table: components.table,
      entry,
      everyMs: () => settings()?.resetMs ?? Infinity,
      found: reload,
      log: components.log,
    });
  }

  async #end(client: Client): Promise<void> {
    const { cancellations, largeResultWriter, orphans, recalls, sessions } = this.#options.components;
    this.#loop = null;
    this.#homeGuard = null;
    this.#client = null;
    this.#options.changes.notify();
    this.#others?.detach();
    cancellations.detach();
    orphans.clearBlame(sessions.owners());
    recalls.detach();
    await largeResultWriter.stop();
    await disconnect(client);
  }
}
