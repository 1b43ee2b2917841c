import { isDeepStrictEqual } from "node:util";
import { EventEmitter } from "eventemitter3";
import {
  compareConfigurations,
  type ConfigurationChanges,
} from "../shared/config/diffConfiguration.js";
import type { Configuration, Entry } from "../shared/config/types.js";
import { describeTarget } from "../shared/postgres/target/describeTarget.js";
import { toReport } from "../shared/errors.js";
import { Lifecycle, type LifecycleHooks } from "../shared/lifecycle.js";
import type { Log } from "../shared/log.js";
import { RolesAndDatabases } from "./rolesAndDatabases.js";
import { fetchControlSettings, withSettings, type ControlSettings } from "./controlSettings.js";
import { Leadership } from "./leadership.js";
import { ClusterStatusBoard } from "./clusterStatusBoard.js";
import { ManagerRegistry } from "./managerRegistry.js";

/** How much longer the supervisor waits than it lets its managers' tasks run, in ms. */
const beyondGraceMs = 10_000;

interface SupervisorEvents {
  /** It leads with its managers at work, or stands by. */
  ready: [];
}

/** One per process: leads the cluster or stands by; as leader it runs a manager for each entry. */
export class Supervisor extends EventEmitter<SupervisorEvents> implements LifecycleHooks {
  /** As it stands in the file. */
  #file: Configuration;
  /** What the control database says beside it, and both together. */
  #settings: ControlSettings = {};
  #configuration: Configuration;
  readonly #log: Log;
  readonly #leadership: Leadership;
  readonly #accounts: RolesAndDatabases;
  readonly #registry: ManagerRegistry;
  readonly #lifecycle: Lifecycle;
  /** What is known of the managers, and of our role. */
  readonly board = new ClusterStatusBoard();
  /** What leading and standing by ask of the managers, one after the other. */
  #changes: Promise<void> = Promise.resolve();
  #reading: Promise<void> = Promise.resolve();
  #draining = false;
  /** Aborted when nothing need be read any more. */
  readonly #ending = new AbortController();
  #saidReady = false;
  /** Whether somebody else led since we did. */
  #stoodBy = false;

  constructor(
    configuration: Configuration,
    options: {
      readonly log: Log;
      /** Gets the log lines of all threads. */
      readonly writeLine: (line: string) => void;
    },
  ) {
    super();
    this.#file = configuration;
    this.#configuration = configuration;
    this.#log = options.log;
    this.#accounts = new RolesAndDatabases(configuration.control, options.log);
    this.#registry = new ManagerRegistry(configuration, {
      ...options,
      accounts: this.#accounts,
      board: this.board,
    });
    this.#leadership = new Leadership({
      target: configuration.control,
      name: configuration.parameters["pg_conf.name"],
      log: options.log,
      rests: () => this.#registry.idle,
    });
    this.#lifecycle = new Lifecycle(this, { name: "supervisor", log: options.log });
    this.#leadership.on("connected", () => this.#registry.retry(this.#leadership.target));
    this.#leadership.on("lost", () => this.board.play("seeking"));
    this.#leadership.on("leader", () => this.#change(() => this.#lead()));
    this.#leadership.on("standby", () => this.#change(() => this.#standBy()));
  }

  /**
   * Takes another configuration up: as leader at once, as standby for when it leads. The cluster's
   * name stays, and so does the place of the control connection, which `configuration` has to have.
   */
  reload(configuration: Configuration): void {
    if (this.#draining) return;
    const name = this.#configuration.parameters["pg_conf.name"];
    const parameters = { ...configuration.parameters, "pg_conf.name": name };
    const changes = compareConfigurations(this.#file, { ...configuration, parameters });
    this.#file = { ...configuration, parameters };
    this.#leadership.target = configuration.control;
    this.#accounts.target = configuration.control;
    this.#apply();
    this.#sayReloaded(changes);
    if (this.#registry.running) void this.#readSettings();
  }

  #apply(): void {
    const before = this.#configuration;
    this.#configuration = withSettings(this.#file, this.#settings);
    this.#registry.apply(this.#configuration, compareConfigurations(before, this.#configuration));
  }

  /** Those that cannot be read stay as they were. One look after the other, so that the last one counts. */
  #readSettings(): Promise<void> {
    this.#reading = this.#reading.then(() => this.#readOnce());
    return this.#reading;
  }

  async #readOnce(): Promise<void> {
    if (this.#draining) return;
    const { control, parameters } = this.#file;
    try {
      const made = await fetchControlSettings(control, parameters, {
        log: this.#log,
        signal: this.#ending.signal,
      });
      if (this.#draining || isDeepStrictEqual(made, this.#settings)) return;
      this.#settings = made;
      this.#log.info({ made }, "settings of the control database changed");
      this.#apply();
    } catch (error) {
      if (this.#draining) return;
      const { code, message } = toReport(error);
      this.#log.warn({ code, reason: message }, "settings of the control database not read");
    }
  }

  /** Resolves when it seeks leadership; it does so until it is stopped. */
  run(): Promise<void> {
    return this.#lifecycle.start();
  }

  /** Resolves with the failure that ended it, null after a stop. */
  get stopped(): Promise<Error | null> {
    return this.#lifecycle.stopped;
  }

  /** Lets running tasks finish within `graceMs`, the configured grace unless given; asked again, the shorter one holds. */
  end(graceMs = this.#configuration.parameters["pg_conf.grace"]): Promise<Error | null> {
    void this.#registry.stop(graceMs);
    return this.#lifecycle.stop(graceMs + beyondGraceMs);
  }

  async start(): Promise<void> {
    this.#registry.prepare();
    this.#leadership.start();
  }

  async drain(): Promise<void> {
    this.#draining = true;
    this.#ending.abort();
    this.board.play("stopping");
    await this.#changes;
    const stopped = this.#registry.stop(this.#configuration.parameters["pg_conf.grace"]);
    // A standby takes over as soon as nothing more is claimed, however long what runs may take.
    await this.#registry.released();
    await this.#leadership.yield();
    await stopped;
  }

  async stop(): Promise<void> {
    await this.#registry.stop(0);
    await this.#leadership.stop();
  }

  /** With the more talkative one of both levels, so that no change of it goes by in silence. */
  #sayReloaded({ added, removed, changed, parameters }: ConfigurationChanges): void {
    const level = this.#configuration.parameters["pg_conf.log"];
    const { values } = this.#log.levels;
    if ((values[level] ?? Infinity) < this.#log.levelVal) this.#log.level = level;
    this.#log.info(
      { added: keys(added), removed: keys(removed), changed, parameters },
      "configuration reloaded",
    );
    this.#log.level = level;
  }

  #change(work: () => Promise<void>): void {
    this.#changes = this.#changes.then(work).catch((error: unknown) => {
      void this.#lifecycle.fail(error instanceof Error ? error : new Error(String(error)));
    });
  }

  async #lead(): Promise<void> {
    if (this.#draining) return;
    this.board.play("leader", { ready: this.#registry.running });
    if (this.#registry.running) {
      this.#log.info("leads again");
      return;
    }
    this.#log.info({ entries: this.#configuration.entries.length }, "leads");
    await this.#readSettings();
    await this.#registry.start({ takesOver: this.#stoodBy });
    if (this.#draining) return;
    this.board.play("leader", { ready: true });
    if (!this.#saidReady) {
      this.#log.info({ url: describeTarget(this.#configuration.control) }, "ready");
    }
    this.#saidReady = true;
    this.emit("ready");
  }

  /** Another process leads, perhaps since our connection was lost for a while. */
  async #standBy(): Promise<void> {
    if (this.#draining) return;
    this.#stoodBy = true;
    this.board.play("standby", { ready: true });
    this.#log.info("standby");
    this.emit("ready");
    if (!this.#registry.running) return;
    await this.#registry.stop(this.#configuration.parameters["pg_conf.grace"]);
    if (!this.#draining) this.#registry.prepare();
  }
}

const keys = (entries: readonly Entry[]): string[] => entries.map(({ key }) => key);
