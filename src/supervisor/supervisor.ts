import { isDeepStrictEqual } from "node:util";
import { EventEmitter } from "eventemitter3";
import { diffConfigurations, type ConfigurationChanges } from "../shared/config/diffConfiguration.js";
import type { Configuration, Entry } from "../shared/config/types.js";
import { isServed } from "../shared/clusterStatus.js";
import { describeTarget } from "../shared/postgres/target/target.js";
import { toReport, type ErrorReport } from "../shared/errors.js";
import { Lifecycle, type LifecycleHooks } from "../shared/lifecycle.js";
import type { Log } from "../shared/log.js";
import { stopMarginsMs } from "../shared/tuning.js";
import { RolesAndDatabases } from "./rolesAndDatabases.js";
import { fetchControlSettings, applyControlSettings, type ControlSettings } from "./controlSettings.js";
import { Leadership } from "./leadership.js";
import {
  confirmReleased,
  databaseOf,
  describeReleased,
  isSameDatabase,
  notIn,
  readReleased,
  type ReleasedDatabase,
} from "./releasedDatabases.js";
import { hashEntries } from "./publishedEntries.js";
import { ClusterStatusBoard } from "./clusterStatusBoard.js";
import { ManagerRegistry } from "./managerRegistry.js";
import { PortRequests } from "./portRequests.js";

/** How long a leader may be unable to serve any entry before it offers the leadership, and between two offers, in ms. */
const offerPauseMs = 10_000;

interface SupervisorEvents {
  /** The supervisor leads and its managers have started, or the supervisor stands by. */
  ready: [];
  /** The control connection could not be opened. It is tried again. */
  unreachable: [reason: ErrorReport];
}

/**
 * Leads the cluster or stands by. As leader, runs a manager for each entry. There is one supervisor in each process.
 *
 *     ┌────────────────────lock acquired─────────────────────┐
 *     │                                                      ▼
 *   seeking ──another leads──▶ standby ──lock acquired──▶ leader
 *     ▲                           │                         │
 *     └────────────────────connection lost──────────────────┘
 *
 * The managers start when the process becomes the leader. If it loses its connection, they continue. They stop when the
 * process stands by, because another process leads then. A stop is possible in every state.
 */
export class Supervisor extends EventEmitter<SupervisorEvents> implements LifecycleHooks {
  /** The configuration as it is in the file. */
  #fileConfiguration: Configuration;
  /** The settings of the control database, and the file's configuration with these, without the released databases. */
  #settings: ControlSettings = {};
  #configuration: Configuration;
  #released: readonly ReleasedDatabase[] = [];
  readonly #log: Log;
  readonly #leadership: Leadership;
  readonly #rolesAndDatabases: RolesAndDatabases;
  readonly #registry: ManagerRegistry;
  readonly #lifecycle: Lifecycle;
  readonly board = new ClusterStatusBoard();
  readonly ports = new PortRequests((payload) => this.#leadership.notify(payload));
  /** Serializes the starting and stopping of the managers when the role changes. */
  #changes: Promise<void> = Promise.resolve();
  #settingsRead: Promise<void> = Promise.resolve();
  #draining = false;
  readonly #ending = new AbortController();
  #wasReady = false;
  #hasStoodBy = false;
  /** Whether the leader was found to have other entries than this process. */
  #hasOtherEntries = false;
  #offerTimer: NodeJS.Timeout | undefined;

  constructor(
    configuration: Configuration,
    options: {
      readonly log: Log;
      /** Receives the log lines of all threads. */
      readonly writeLine: (line: string) => void;
    },
  ) {
    super();
    this.#fileConfiguration = configuration;
    this.#configuration = configuration;
    this.#log = options.log;
    this.#rolesAndDatabases = new RolesAndDatabases(configuration.control, options.log);
    this.#registry = new ManagerRegistry(configuration, {
      ...options,
      rolesAndDatabases: this.#rolesAndDatabases,
      board: this.board,
    });
    this.#leadership = new Leadership({
      target: configuration.control,
      name: configuration.parameters["pg_conf.name"],
      log: options.log,
      isIdle: () => this.#registry.isIdle,
      entryHashes: () => hashEntries(configuration.parameters["pg_conf.name"], this.#fileConfiguration.entries),
      frozenMs: () => this.#configuration.parameters["pg_conf.frozen"],
    });
    this.#lifecycle = new Lifecycle(this, { name: "supervisor", log: options.log });
    this.board.on("changed", () => this.#offerIfFutile());
    this.#leadership.on("connected", (pid) => {
      this.board.controlPid = pid;
      this.#registry.retryOnServer(this.#leadership.target);
    });
    this.#leadership.on("failed", (reason) => this.emit("unreachable", reason));
    this.#leadership.on("lost", () => {
      this.board.controlPid = null;
      this.board.setRole("seeking");
    });
    this.#leadership.on("released", () => this.#enqueueChange(async () => void (await this.#readReleased())));
    this.#leadership.on("leader", () => this.#enqueueChange(() => this.#lead()));
    this.#leadership.on("portMessage", (payload) => this.ports.receive(payload));
    this.#leadership.on("compared", (areSame) => this.#reportOtherEntries(!areSame));
    this.#leadership.on("standby", () => this.#enqueueChange(() => this.#standBy()));
  }

  /**
   * Applies a changed configuration. A leader applies it at once, a standby when it becomes leader. The cluster's name
   * stays as it is. In `configuration`, the location of the control connection must be the same as before.
   */
  reload(configuration: Configuration): void {
    if (this.#draining) return;
    const name = this.#configuration.parameters["pg_conf.name"];
    const parameters = { ...configuration.parameters, "pg_conf.name": name };
    const changes = diffConfigurations(this.#fileConfiguration, { ...configuration, parameters });
    this.#fileConfiguration = { ...configuration, parameters };
    this.#leadership.target = configuration.control;
    this.#rolesAndDatabases.target = configuration.control;
    this.#apply();
    void this.#leadership.publishEntries();
    this.#logReloaded(changes);
    if (this.#registry.isRunning) void this.#readSettings();
  }

  #apply(): void {
    const before = this.#configuration;
    const { entries, ...configured } = applyControlSettings(this.#fileConfiguration, this.#settings);
    const released = new Map(entries.map((entry) => [entry.key, this.#releaseOf(entry)]));
    this.#configuration = { ...configured, entries: entries.filter(({ key }) => released.get(key) === undefined) };
    this.#registry.apply(this.#configuration, diffConfigurations(before, this.#configuration));
    this.board.setReleased(
      new Map([...released].flatMap(([key, found]) => (found === undefined ? [] : [[key, describeReleased(found)]]))),
    );
  }

  #releaseOf(entry: Entry): ReleasedDatabase | undefined {
    return this.#released.find((each) => isSameDatabase(each, databaseOf(entry)));
  }

  /**
   * Leaves the databases that are released for maintenance, and serves the others again. Returns false if the control
   * connection was lost: nothing is known then, and it is read again on the next one.
   */
  async #readReleased(): Promise<boolean> {
    if (this.#draining) return false;
    const before = this.#released;
    try {
      this.#released = await this.#leadership.use((control) => readReleased(control, this.#fileConfiguration));
    } catch (error) {
      const report = toReport(error);
      if (report.code === "CONNECTION_LOST") return false;
      this.#log.warn({ code: report.code, reason: report.message }, "released databases not read");
      return true;
    }
    this.#apply();
    for (const { database, reason } of notIn(this.#released, before))
      this.#log.info({ database, reason }, "database released for maintenance");
    for (const { database } of notIn(before, this.#released)) this.#log.info({ database }, "database served again");
    for (const each of this.#released) if (!each.isFree && this.board.role === "leader") void this.#confirm(each);
    return true;
  }

  /** Records that a released database is free when its managers have ended. */
  async #confirm(released: ReleasedDatabase): Promise<void> {
    const entries = this.#fileConfiguration.entries.filter((entry) => this.#releaseOf(entry) === released);
    await Promise.all(entries.map(({ key }) => this.#registry.ended(key)));
    try {
      await this.#leadership.use((control) => confirmReleased(control, this.#fileConfiguration, released));
    } catch (error) {
      const { code, message } = toReport(error);
      // After a loss, the next leader confirms.
      if (code !== "CONNECTION_LOST") this.#log.warn({ code, reason: message }, "released database not confirmed");
    }
  }

  /** If reading fails, the previous settings stay. Reads are done one after another, so that the last one counts. */
  #readSettings(): Promise<void> {
    this.#settingsRead = this.#settingsRead.then(() => this.#readSettingsOnce());
    return this.#settingsRead;
  }

  async #readSettingsOnce(): Promise<void> {
    if (this.#draining) return;
    const { control, parameters } = this.#fileConfiguration;
    try {
      const settings = await fetchControlSettings(control, parameters, {
        log: this.#log,
        signal: this.#ending.signal,
      });
      if (this.#draining || isDeepStrictEqual(settings, this.#settings)) return;
      this.#settings = settings;
      this.#log.info({ settings }, "control database settings changed");
      this.#apply();
    } catch (error) {
      if (this.#draining) return;
      const { code, message } = toReport(error);
      this.#log.warn({ code, reason: message }, "control database settings not read");
    }
  }

  /** Resolves when the supervisor has begun to compete for leadership. */
  run(): Promise<void> {
    return this.#lifecycle.start();
  }

  /** Resolves with the error that ended the supervisor, or with null after a stop. */
  get stopped(): Promise<Error | null> {
    return this.#lifecycle.stopped;
  }

  /** Lets running tasks finish within `graceMs`. If `end` is called again, the shorter grace period applies. */
  end(graceMs = this.#configuration.parameters["pg_conf.grace"]): Promise<Error | null> {
    void this.#registry.stop(graceMs);
    return this.#lifecycle.stop(graceMs + stopMarginsMs.supervisor);
  }

  async start(): Promise<void> {
    this.#registry.preloadWorkers();
    this.#leadership.start();
  }

  async drain(): Promise<void> {
    this.#draining = true;
    this.#ending.abort();
    this.board.setRole("stopping");
    await this.#changes;
    const stopped = this.#registry.stop(this.#configuration.parameters["pg_conf.grace"]);
    // A standby takes over as soon as no manager here claims tasks any more, even while tasks still run here.
    await this.#registry.claimingStopped();
    await this.#leadership.yield();
    await stopped;
  }

  async stop(): Promise<void> {
    await this.#registry.stop(0);
    await this.#leadership.stop();
  }

  /** Uses the more verbose of the old and the new log level, so that a change of the level itself is logged. */
  #logReloaded({ added, removed, changed, parameters }: ConfigurationChanges): void {
    const level = this.#configuration.parameters["pg_conf.log"];
    const { values } = this.#log.levels;
    if ((values[level] ?? Infinity) < this.#log.levelVal) this.#log.level = level;
    this.#log.info({ added: keysOf(added), removed: keysOf(removed), changed, parameters }, "configuration reloaded");
    this.#log.level = level;
  }

  #enqueueChange(work: () => Promise<void>): void {
    this.#changes = this.#changes.then(work).catch((error: unknown) => void this.#lifecycle.fail(error));
  }

  async #lead(): Promise<void> {
    if (this.#draining) return;
    this.board.setRole("leader", { ready: this.#registry.isRunning });
    if (this.#registry.isRunning) {
      this.#log.info("leadership regained");
      await this.#readReleased();
      return;
    }
    if (!(await this.#readReleased())) return;
    this.#log.info({ entries: this.#configuration.entries.length }, "became leader");
    await this.#readSettings();
    if (this.#draining) return;
    await this.#registry.start({
      takesOver: this.#hasStoodBy,
      afterFrozen: this.#leadership.hasReplacedFrozen,
    });
    if (this.#draining) return;
    this.board.setRole("leader", { ready: true });
    if (!this.#wasReady) {
      this.#log.info({ url: describeTarget(this.#configuration.control), ...this.#summarizeEntries() }, "ready");
    }
    this.#wasReady = true;
    this.emit("ready");
  }

  /** Logs once that this standby would serve other tables than the leader does. */
  #reportOtherEntries(areOther: boolean): void {
    if (areOther && !this.#hasOtherEntries) {
      this.#log.warn({ entries: keysOf(this.#configuration.entries) }, "standby with other entries than the leader");
    }
    this.#hasOtherEntries = areOther;
  }

  /**
   * Offers the leadership from time to time while this process leads and the server refuses the logins of all its
   * entries, because a standby may have other passwords, for example.
   */
  #offerIfFutile(): void {
    const { entries } = this.#configuration;
    const isRefused = ({ key }: Entry): boolean => this.board.manager(key)?.reason?.code === "CONNECTION_REJECTED";
    if (this.board.role === "leader" && entries.length > 0 && entries.every(isRefused)) {
      this.#offerTimer ??= setTimeout(() => void this.#offer(), offerPauseMs).unref();
    } else {
      clearTimeout(this.#offerTimer);
      this.#offerTimer = undefined;
    }
  }

  async #offer(): Promise<void> {
    await this.#leadership.offer();
    this.#offerTimer = undefined;
    this.#offerIfFutile();
  }

  #summarizeEntries(): { readonly serving: number; readonly waiting: readonly string[] } {
    const keys = keysOf(this.#fileConfiguration.entries);
    const waiting = keys.filter((key) => !isServed(this.board.manager(key)));
    return { serving: keys.length - waiting.length, waiting };
  }

  /**
   * Stands by because another process leads. If managers are running here, this process led before and lost leadership
   * together with its connection.
   */
  async #standBy(): Promise<void> {
    if (this.#draining) return;
    this.#hasStoodBy = true;
    this.board.setRole("standby", { ready: true });
    this.#log.info("standby");
    this.emit("ready");
    const { isRunning } = this.#registry;
    const stopped = isRunning ? this.#registry.stop(this.#configuration.parameters["pg_conf.grace"]) : null;
    await this.#readReleased();
    await stopped;
    if (isRunning && !this.#draining) this.#registry.preloadWorkers();
  }
}

const keysOf = (entries: readonly Entry[]): string[] => entries.map(({ key }) => key);
