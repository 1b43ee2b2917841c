import type { ConfigurationChanges } from "../shared/config/diffConfiguration.js";
import type { Configuration, Entry } from "../shared/config/types.js";
import { serverLabel, serversOf, shareServer, type ConnectionTarget } from "../shared/postgres/target/target.js";
import { SessionGrants } from "./sessionGrants.js";
import type { FromManager } from "../shared/ipc/managerMessages.js";
import { Limiter } from "../shared/limiter.js";
import type { ClusterStatusBoard } from "./clusterStatusBoard.js";
import { ManagerThread, type ManagerThreadOptions } from "./managerThread.js";
import { SpareWorkers } from "./spareWorkers.js";

type RegistryOptions = Omit<ManagerThreadOptions, "spareWorkers" | "takesOver" | "afterFrozen" | "managers"> & {
  readonly board: ClusterStatusBoard;
};

type Predecessor = Pick<ManagerThreadOptions, "takesOver" | "afterFrozen">;

const noPredecessor: Predecessor = { takesOver: false, afterFrozen: false };

/** Least time between two requests to all managers on a server to probe, in ms. A server can end all connections. */
const probePauseMs = 1_000;

/** Least time between two log lines about too few sessions, in ms. Many short batches would log one line each. */
const shortageLogMs = 60_000;

const labelOfServers = (target: ConnectionTarget): string => serversOf(target).map(serverLabel).toSorted().join(",");

/**
 * Runs the leader's managers, one for each entry, and shares the sessions among them. The manager of one entry:
 *
 *   waiting ──predecessor claims no more, its turn──▶ running ──entry removed or replaced, stop──▶ stopping ──▶ ended
 *      │                                                                                              ▲
 *      └──────────────────────────────entry removed or replaced, stop─────────────────────────────────┘
 *
 * The predecessor is an earlier manager of the same entry that is still stopping. Its running tasks go on beside the next
 * manager, as they do when a standby takes over.
 */
export class ManagerRegistry {
  readonly #options: RegistryOptions;
  readonly #spareWorkers = new SpareWorkers();
  readonly #grants: SessionGrants<ManagerThread>;
  readonly #startLimiter: Limiter;
  /** The managers that are not stopping, by entry key. */
  readonly #managers = new Map<string, ManagerThread>();
  readonly #stopping = new Set<ManagerThread>();
  /** For each entry key, a promise that resolves when no stopping manager with this key claims tasks any more. */
  readonly #released = new Map<string, Promise<unknown>>();
  #configuration: Configuration;
  #isShort = false;
  #shortageLoggedAt = -Infinity;
  /** When all managers on a server were last told to probe, as a value of performance.now(), by the servers' label. */
  readonly #probedAt = new Map<string, number>();

  constructor(configuration: Configuration, options: RegistryOptions) {
    this.#configuration = configuration;
    this.#options = options;
    this.#grants = new SessionGrants(configuration.parameters["pg_conf.max"], (manager, sessions, number) =>
      manager.grant(sessions, number),
    );
    this.#startLimiter = new Limiter(configuration.parameters["pg_conf.fetch"]);
  }

  get isRunning(): boolean {
    return this.#managers.size > 0;
  }

  get isIdle(): boolean {
    return this.#grants.wanted === 0;
  }

  /** Starts a spare thread for each manager that can start at the same time. */
  preloadWorkers(): void {
    const { entries, parameters } = this.#configuration;
    this.#spareWorkers.fillUp(Math.min(entries.length, parameters["pg_conf.fetch"]));
  }

  /**
   * Starts a manager for each entry, a few at a time. Resolves when each manager either serves its table or has
   * reported why it cannot.
   */
  async start(options: Predecessor): Promise<void> {
    const { entries } = this.#configuration;
    await Promise.all(entries.map((entry) => this.#add(entry, options)));
    await this.#spareWorkers.terminate();
  }

  apply(configuration: Configuration, changes: ConfigurationChanges): void {
    const { isRunning } = this;
    this.#configuration = configuration;
    this.#startLimiter.limit = configuration.parameters["pg_conf.fetch"];
    this.#grants.total = configuration.parameters["pg_conf.max"];
    this.#logShortage();
    if (!isRunning) return;
    for (const { key } of [...changes.removed, ...changes.restarted]) this.#remove(key);
    for (const entry of changes.kept) {
      const manager = this.#managers.get(entry.key);
      void this.#startLimiter.run(async () => await manager?.reconfigure(entry));
    }
    for (const entry of [...changes.restarted, ...changes.added]) void this.#add(entry);
  }

  retryOnServer(target: ConnectionTarget): void {
    for (const manager of this.#managers.values()) {
      if (shareServer(manager.target, target)) manager.retryNow();
    }
  }

  /** Stops all managers. If `stop` is called again, the shorter grace period applies. */
  async stop(graceMs: number): Promise<void> {
    for (const [key, manager] of this.#managers) this.#startStopping(key, manager, graceMs);
    this.#managers.clear();
    await Promise.all([this.#spareWorkers.terminate(), ...[...this.#stopping].map((manager) => manager.stop(graceMs))]);
  }

  async claimingStopped(): Promise<void> {
    await Promise.all([...this.#stopping].map((manager) => manager.claimingStopped));
  }

  #remove(key: string): void {
    const manager = this.#managers.get(key);
    if (manager === undefined) return;
    this.#managers.delete(key);
    this.#startStopping(key, manager, this.#configuration.parameters["pg_conf.grace"]);
  }

  #startStopping(key: string, manager: ManagerThread, graceMs: number): void {
    this.#stopping.add(manager);
    void this.#stopManager(manager, graceMs);
    this.#released.set(key, Promise.all([manager.claimingStopped, this.#released.get(key)]));
    // The stop message is sent before the grant is withdrawn, because a manager that is stopping keeps its sessions
    // until their results are written.
    this.#grants.retire(manager);
  }

  async #stopManager(manager: ManagerThread, graceMs: number): Promise<void> {
    await manager.stop(graceMs);
    this.#stopping.delete(manager);
    manager.emit("claimingStopped");
    this.#grants.leave(manager);
    this.#options.board.forget(manager);
  }

  async #add(entry: Entry, predecessor: Predecessor = noPredecessor): Promise<void> {
    const manager = new ManagerThread(entry, {
      ...this.#options,
      spareWorkers: this.#spareWorkers,
      managers: () => this.#configuration.entries.length,
      ...predecessor,
    });
    this.#managers.set(entry.key, manager);
    this.#grants.join(manager, labelOfServers(entry.target));
    this.#options.board.follow(entry, manager);
    manager.on("message", (message) => this.#receive(manager, message));
    manager.on("disconnected", () => this.#probeOthers(manager));
    manager.on("ready", () => this.retryOnServer(manager.target));
    manager.on("died", () => this.#grants.clear(manager));
    await this.#released.get(entry.key);
    await this.#startLimiter.run(async () => {
      manager.start();
      await manager.settled;
    });
  }

  #receive(manager: ManagerThread, message: FromManager): void {
    if (message.type === "demand") {
      this.#grants.setDemand(manager, message.sessions);
      this.#logShortage();
    } else if (message.type === "statistics") {
      this.#grants.setUsage(manager, { open: message.sessions, busy: message.running });
    } else if (message.type === "serverFull") this.#grants.reportFull(manager, message.capacity);
    else if (message.type === "grantAnswered") this.#grants.acknowledge(manager, message.sessions, message.number);
  }

  /**
   * Makes the other managers on the server of `lost`, which may be in deep sleep, probe their connections: a network that
   * fails often drops all connections to a server at once.
   */
  #probeOthers(lost: ManagerThread): void {
    const servers = labelOfServers(lost.target);
    const now = performance.now();
    if (now - (this.#probedAt.get(servers) ?? -Infinity) < probePauseMs) return;
    this.#probedAt.set(servers, now);
    for (const manager of this.#managers.values()) {
      if (manager !== lost && shareServer(manager.target, lost.target)) manager.probe();
    }
  }

  #logShortage(): void {
    const { wanted, total } = this.#grants;
    const now = performance.now();
    if (wanted > total && !this.#isShort && now - this.#shortageLoggedAt >= shortageLogMs) {
      this.#shortageLoggedAt = now;
      this.#options.log.warn({ wanted, "pg_conf.max": total }, "more sessions wanted than granted, tasks wait");
    }
    this.#isShort = wanted > total;
  }
}
