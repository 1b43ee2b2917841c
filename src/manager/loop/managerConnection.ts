import { logInvalidSettings } from "../../shared/config/serverSettings.js";
import type { Entry } from "../../shared/config/types.js";
import { fromReport, isConnectionLoss, type ErrorReport } from "../../shared/errors.js";
import { lockClasses } from "../../shared/postgres/advisoryLocks.js";
import { connectionLost, disconnect, serverOf, type Client } from "../../shared/postgres/client.js";
import type { ConnectionWatchdog } from "../../shared/postgres/connectionWatchdog.js";
import { isRollCall } from "../../shared/postgres/rollCall.js";
import { changedSettings, readSettings, type ManagerSettings } from "../model/settings.js";
import { discardUnconfirmed } from "../recovery/discardUnconfirmed.js";
import { OtherManagers } from "../recovery/otherManagers.js";
import { ensureTable, explainError } from "../schema/ensureTable.js";
import { logWriters } from "../schema/grants.js";
import { homeChanged } from "../schema/home.js";
import { listenToTable } from "../schema/listen.js";
import { locateTable } from "../schema/locateTable.js";
import { placeOf } from "../schema/movedTable.js";
import { logUnknownZones } from "../schema/unknownZones.js";
import { StallMonitor } from "../stalls/stallMonitor.js";
import { PartitionWatcher } from "../upkeep/partitionWatcher.js";
import { BusyMode } from "./busyMode.js";
import type { ManagerComponents } from "./components.js";
import { connectManager, readIdentity, setApplicationName } from "./connectManager.js";
import { HomeGuard } from "./homeGuard.js";
import { probeConnection } from "./idleProbes.js";
import { ManagerLoop } from "./managerLoop.js";
import { SettingsReloader } from "./settingsReloader.js";
import { lockTable, unlock } from "./tableLock.js";
import type { WorkCycle } from "./workCycle.js";

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
  readonly #workCycle: WorkCycle;
  readonly #cycled: () => void;
  readonly #isFinished: () => boolean;
  readonly #stallMonitor: StallMonitor;
  readonly #settingsReloader: SettingsReloader;
  #serving: { readonly client: Client; readonly loop: ManagerLoop; readonly homeGuard: HomeGuard } | null = null;
  #watchdog: ConnectionWatchdog | null = null;
  #leaveReason: ErrorReport | null = null;

  constructor(
    components: ManagerComponents,
    options: {
      readonly workCycle: WorkCycle;
      readonly cycled: () => void;
      readonly isFinished: () => boolean;
    },
  ) {
    this.#components = components;
    this.#workCycle = options.workCycle;
    this.#cycled = options.cycled;
    this.#isFinished = options.isFinished;
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

  reload(): void {
    this.#settingsReloader.restart();
  }

  /** Creates missing objects, on a separate connection. Without a connection, the next one creates them. */
  restoreObjects(): void {
    if (this.isServing) this.#settingsReloader.restore();
  }

  doubtHome(): void {
    this.#serving?.homeGuard.doubt();
  }

  applySettings(settings: ManagerSettings): void {
    const { executors, log, settings: before } = this.#components;
    this.#components.settings = settings;
    executors.reconfigure();
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
    const { changes, ending, entry, log, sessionAccess, sessionWatchdog, table, wakeSignal } = this.#components;
    const client = await connectManager(entry, ending.signal);
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
      const loopEnded = loop.run(() => isLost || this.#isFinished());
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
    const { cancellations, groups, log, pendingResults, sessions, table } = this.#components;
    await this.#readSettings(client, entry);
    // A draining manager only writes results. It creates nothing and needs no lock, and another manager may already
    // serve the table.
    const previousOid = table.servedOid;
    const knownOid = this.#components.isDraining ? previousOid : null;
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
    const otherManagers = await OtherManagers.attach(client, oid, this.#components, () => this.isServing);
    ended.addEventListener("abort", () => otherManagers.detach(), { once: true });
    const isLocked = await lockTable(client, this.#components, oid, otherManagers);
    groups.forgetStarts();
    sessions.recalls.attach(isLocked);
    await discardUnconfirmed(client, table, sessions, pendingResults);
    const homeGuard = new HomeGuard(client, this.#components);
    const partitions = this.#watchPartitions();
    const loop = new ManagerLoop(client, this.#components, {
      workCycle: this.#workCycle,
      busyMode: new BusyMode(client, oid),
      homeGuard,
      otherManagers,
      watchdog,
      unlock: async () => {
        if (isLocked) await unlock(client, lockClasses.manager, oid);
      },
      cycled: () => {
        this.#cycled();
        if (this.#components.isDraining) return;
        partitions.check(client);
        homeGuard.check();
      },
    });
    client.on("notification", ({ payload }) => {
      if (payload === homeChanged) homeGuard.doubt();
      else if (!isRollCall(payload)) loop.receiveNotification();
    });
    await listenToTable(client, table);
    this.#serving = { client, loop, homeGuard };
    // The manager was reconfigured while this connection was being prepared.
    if (this.#components.entry !== entry) this.reload();
    cancellations.attach(client, (done) => sessions.confirmCancel(done));
    return { loop, homeGuard };
  }

  async #readSettings(client: Client, entry: Entry): Promise<void> {
    const { isSuperuser, serverStart } = await readIdentity(client);
    this.#components.isSuperuser = isSuperuser;
    this.#components.server = { target: serverOf(client), start: serverStart };
    const settings = await readSettings(client, entry, this.#components.log);
    this.applySettings(settings);
    this.#components.statistics.connected();
    await setApplicationName(client, entry, settings.sleepMs);
  }

  #watchPartitions(): PartitionWatcher {
    const { log, table } = this.#components;
    return new PartitionWatcher({
      table,
      entry: () => this.#components.entry,
      everyMs: () => this.#components.resetMs,
      found: () => this.reload(),
      log,
    });
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
