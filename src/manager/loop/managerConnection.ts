import { logInvalidSettings } from "../../shared/config/serverSettings.js";
import type { Entry } from "../../shared/config/types.js";
import { fromReport, isConnectionLoss, type ErrorReport } from "../../shared/errors.js";
import type { ManagerMemory, SettledTable } from "../../shared/ipc/sleepingTable.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";
import { connectionLost, disconnect, serverOf, type Client } from "../../shared/postgres/client.js";
import type { ConnectionWatchdog } from "../../shared/postgres/connectionWatchdog.js";
import { isRollCall } from "../../shared/postgres/rollCall.js";
import { changedSettings, readSettings, type ManagerSettings } from "../model/settings.js";
import { discardUnconfirmed } from "../recovery/discardUnconfirmed.js";
import { OtherManagers, rollCallChannel } from "../recovery/otherManagers.js";
import { ensureTable, explainError, tableOid } from "../schema/ensureTable.js";
import { logWriters } from "../schema/grants.js";
import { homeChanged } from "../schema/home.js";
import { listenToTable } from "../schema/listen.js";
import { locateTable } from "../schema/locateTable.js";
import { placeOf } from "../schema/movedTable.js";
import { logSuspensions } from "../results/logSuspensions.js";
import { logUnknownZones } from "../schema/unknownZones.js";
import { StallMonitor } from "../stalls/stallMonitor.js";
import { PartitionWatcher } from "../upkeep/partitionWatcher.js";
import { BusyMode } from "./busyMode.js";
import type { ManagerComponents } from "./components.js";
import { connectManager, correctApplicationName, readIdentity, setApplicationName } from "./connectManager.js";
import { HomeGuard } from "./homeGuard.js";
import { probeConnection } from "./idleProbes.js";
import { ManagerLoop } from "./managerLoop.js";
import { SettingsReloader } from "./settingsReloader.js";
import { lockTable, unlock } from "./tableLock.js";
import type { WorkCycle } from "./workCycle.js";

interface ManagerConnectionOptions {
  readonly workCycle: WorkCycle;
  readonly cycled: () => void;
  readonly isFinished: () => boolean;
  readonly memory: ManagerMemory | null;
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
  readonly #components: ManagerComponents;
  readonly #options: ManagerConnectionOptions;
  readonly #stallMonitor: StallMonitor;
  readonly #settingsReloader: SettingsReloader;
  #serving: { readonly client: Client; readonly loop: ManagerLoop; readonly homeGuard: HomeGuard } | null = null;
  #watchdog: ConnectionWatchdog | null = null;
  #leaveReason: ErrorReport | null = null;
  #memory: ManagerMemory | null;

  constructor(components: ManagerComponents, options: ManagerConnectionOptions) {
    this.#components = components;
    this.#options = options;
    this.#memory = options.memory;
    this.#stallMonitor = new StallMonitor(components);
    this.#settingsReloader = new SettingsReloader(components, this);
  }

  get isServing(): boolean {
    return this.#serving !== null;
  }

  /** Whether the server may be claiming tasks for this manager, or its answer may be under way. */
  get mayClaim(): boolean {
    return this.#serving?.loop.mayClaim ?? false;
  }

  /** Ends the connection, so that the manager connects again. */
  leave(reason: ErrorReport): void {
    if (this.#serving === null) return;
    this.#leaveReason = reason;
    this.#serving.client.connection.stream.destroy();
  }

  probe(): void {
    this.#watchdog?.probeNow();
  }

  acceptSleep(): void {
    this.#serving?.loop.acceptSleep();
  }

  reload(): void {
    this.#settingsReloader.restart();
  }

  /** Creates missing objects, on a separate connection. Without a connection, the next one creates them. */
  restoreObjects(): void {
    if (this.isServing) this.#settingsReloader.restore();
  }

  /** While it was being reloaded, the manager could not fall asleep. */
  reloaded(): void {
    this.#serving?.loop.wake();
  }

  doubtHome(): void {
    this.#serving?.homeGuard.doubt();
  }

  applySettings(settings: ManagerSettings): void {
    const { executors, log, sessions, settings: before } = this.#components;
    this.#components.settings = settings;
    executors.reconfigure();
    sessions.overruns.check();
    this.#components.divideShares();
    if (this.#serving === null || before === null) return;
    const { client, loop } = this.#serving;
    loop.wake();
    const changed = changedSettings(before, settings);
    if (Object.keys(changed).length === 0) return;
    log.info(changed, "settings changed");
    if (changed.sleepMs === undefined) return;
    // The error can be ignored here, because it ends the connection and the next connection gets the new name anyway.
    setApplicationName(client, this.#components.entry, settings.sleepMs).catch(() => {});
  }

  /**
   * Connects, locks the table, and serves it until the manager's work is finished.
   *
   * @throws errors of the server and the network; the connection is closed in that case
   */
  async serve(): Promise<void> {
    try {
      await this.#serveOnce();
    } finally {
      // Managers on later connections may follow those of other processes.
      this.#memory = null;
    }
  }

  async #serveOnce(): Promise<void> {
    const { changes, ending, entry, log, sessionAccess, sessionWatchdog, table, wakeSignal } = this.#components;
    const client = await connectManager(entry, ending.signal);
    logSuspensions(client, log);
    sessionAccess.accepted();
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
      if (!this.#components.isTableAt(await locateTable(client, entry, logInvalidSettings(log)))) {
        await changes.until(() => false, ending.signal);
        return;
      }
      this.#watchdog = probeConnection(client, () => ({
        managers: this.#components.managers,
        isAsleep: this.#serving?.loop.isAsleep ?? null,
      }));
      const { loop, homeGuard } = await this.#prepare(client, entry, this.#watchdog, ended.signal);
      // A cycle without statements would not notice the loss, and the loop would compete with the next one.
      const loopEnded = loop.run(() => isLost || this.#options.isFinished());
      await Promise.race([
        loopEnded.then(async () => (isLost ? await lost : undefined)),
        sessionWatchdog.watch(client, ended.signal),
        this.#stallMonitor.watch(client, ended.signal, () =>
          this.#components.isDraining || homeGuard.isHeld ? null : loop,
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
      throw await explainError(client, table, error);
    } finally {
      ended.abort();
      this.#watchdog?.stop();
      await this.#end(client);
    }
  }

  async #prepare(
    client: Client,
    entry: Entry,
    watchdog: ConnectionWatchdog,
    ended: AbortSignal,
  ): Promise<{ readonly loop: ManagerLoop; readonly homeGuard: HomeGuard }> {
    const { cancellations, groups, pendingResults, sessions, table, zoneChanges } = this.#components;
    await this.#readSettings(client, entry);
    const { oid, isSettled } = await this.#findTable(client, entry);
    const otherManagers = await OtherManagers.attach(client, oid, this.#components, () => this.isServing);
    ended.addEventListener("abort", () => otherManagers.detach(), { once: true });
    const { isLocked, hasWaited } = await lockTable(client, this.#components, oid, otherManagers);
    const memory = hasWaited ? null : this.#memory;
    groups.forgetStarts(memory?.quietMs);
    if (memory !== null) zoneChanges.defer(memory.zoneCheckMs);
    sessions.recalls.attach(isLocked);
    await discardUnconfirmed(client, table, sessions, pendingResults);
    const homeGuard = new HomeGuard(client, this.#components);
    const channels = await listenToTable(client, table);
    const partitions = new PartitionWatcher(this.#components, () => this.reload());
    const loop = new ManagerLoop(client, this.#components, {
      workCycle: this.#options.workCycle,
      busyMode: new BusyMode(client, oid, undefined, memory !== null),
      homeGuard,
      otherManagers,
      watchdog,
      unlock: async () => {
        if (isLocked) await unlock(client, lockClasses.manager, oid);
      },
      cycled: () => {
        this.#options.cycled();
        if (this.#components.isDraining) return;
        partitions.check(client);
        homeGuard.check();
      },
      watched: { oid, channels, rollCall: rollCallChannel(oid) },
      isWoken: memory !== null,
      isSettled: memory !== null && isSettled,
      isReloading: () => this.#settingsReloader.isRunning,
    });
    client.on("notification", ({ payload }) => {
      if (payload === homeChanged) homeGuard.doubt();
      else if (!isRollCall(payload)) loop.receiveNotification();
    });
    this.#serving = { client, loop, homeGuard };
    // The manager was reconfigured while this connection was being prepared, or another one has served the table.
    if (this.#components.entry !== entry || (hasWaited && isSettled)) this.reload();
    cancellations.attach(client, (done) => sessions.confirmCancel(done));
    return { loop, homeGuard };
  }

  /**
   * Creates or changes the table, unless it is as a manager that fell asleep has left it. A draining manager only writes
   * results. It creates nothing and needs no lock, and another manager may already serve the table.
   */
  async #findTable(client: Client, entry: Entry): Promise<{ readonly oid: number; readonly isSettled: boolean }> {
    const { isDraining, lanes, log, table } = this.#components;
    const settled = await this.#findSettled(client);
    const previousOid = table.servedOid ?? settled?.oid ?? null;
    const isKnown = isDraining || settled !== null;
    const oid = (table.servedOid = (isKnown ? previousOid : null) ?? (await ensureTable(client, table, entry, log)));
    lanes.begin();
    if (previousOid !== null && previousOid !== oid) {
      const before = (await placeOf(client, previousOid)) ?? "dropped";
      log.warn(
        { table: table.logName, before },
        "another table has this name now, without the tasks of the one before",
      );
    }
    const isNew = settled?.wasServed === false;
    if (!isKnown || isNew) await logUnknownZones(client, table, entry.parameters["pg_task.zone"], log);
    if (previousOid !== oid || isNew) await logWriters(client, table, log);
    return { oid, isSettled: settled !== null };
  }

  /** What the manager that fell asleep has left, if the table and the server are still the same. */
  async #findSettled(client: Client): Promise<SettledTable | null> {
    const { server, table } = this.#components;
    const settled = this.#memory?.settled ?? null;
    if (settled === null) return null;
    if (settled.serverStart !== server?.start || (await tableOid(client, table)) !== settled.oid) {
      this.#memory = null;
      return null;
    }
    if (settled.stateType !== null) table.stateType = settled.stateType;
    return settled;
  }

  async #readSettings(client: Client, entry: Entry): Promise<void> {
    const [{ isSuperuser, serverStart }, settings] = await Promise.all([
      readIdentity(client),
      readSettings(client, entry, this.#components.log),
    ]);
    this.#components.isSuperuser = isSuperuser;
    this.#components.server = { target: serverOf(client), start: serverStart };
    this.applySettings(settings);
    this.#components.statistics.connected();
    await correctApplicationName(client, entry, settings.sleepMs);
  }

  async #end(client: Client): Promise<void> {
    const { cancellations, changes, largeResultWriter, orphans, sessions } = this.#components;
    this.#serving = null;
    changes.notify();
    cancellations.detach();
    orphans.clearBlame(sessions.owners);
    sessions.recalls.detach();
    await largeResultWriter.stop();
    await disconnect(client);
  }
}
