import { availableParallelism } from "node:os";
import type { ConfigurationChanges } from "../shared/config/diffConfiguration.js";
import type { Configuration, Entry } from "../shared/config/types.js";
import { serverLabel, serversOf, shareServer, type ConnectionTarget } from "../shared/postgres/target/target.js";
import { SessionGrants } from "./sessionGrants.js";
import type { FromManager } from "../shared/ipc/managerMessages.js";
import { Limiter } from "../shared/limiter.js";
import type { ClusterStatusBoard } from "./clusterStatusBoard.js";
import { Examiner } from "./examiner.js";
import { fewManagers } from "./managerSleep.js";
import { ManagerThread, type ManagerThreadOptions } from "./managerThread.js";
import { SpareWorkers } from "./spareWorkers.js";
import { TableWatches } from "./tableWatches.js";

type RegistryOptions = Pick<ManagerThreadOptions, "rolesAndDatabases" | "log" | "writeLine"> & {
  readonly board: ClusterStatusBoard;
};

type Predecessor = Pick<ManagerThreadOptions, "takesOver" | "afterFrozen">;

const noPredecessor: Predecessor = { takesOver: false, afterFrozen: false };

/** Least time between two requests to all managers on a server to probe, in ms. A server can end all connections. */
const probePauseMs = 1_000;

/** How many of many managers start at once. More would only compete for the CPU: each needs about 50 ms of it. */
const maxTurns = Math.max(4, 2 * availableParallelism());

/** How many threads are kept ready for sleeping tables, and at least one. Each takes about 15 MB. */
const spareThreads = 2;

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
  readonly #examiner = new Examiner(this.#spareWorkers);
  readonly #watches: TableWatches;
  readonly #asleep = new Set<ManagerThread>();
  #hasStarted = false;
  readonly #grants: SessionGrants<ManagerThread>;
  readonly #startLimiter: Limiter;
  /** For all threads, also of tables that wake: a thousand may do so at the same time of a day. */
  readonly #turns: Limiter;
  /** The managers that are not stopping, by entry key. */
  readonly #managers = new Map<string, ManagerThread>();
  /** Each with a promise that resolves when it has ended. */
  readonly #stopping = new Map<ManagerThread, Promise<void>>();
  #isRunning = false;
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
    this.#watches = new TableWatches(options.log);
    this.#grants = new SessionGrants(configuration.parameters["pg_conf.max"], (manager, sessions, number) =>
      manager.grant(sessions, number),
    );
    this.#startLimiter = new Limiter(configuration.parameters["pg_conf.fetch"]);
    this.#turns = new Limiter(this.#turnsAtOnce);
  }

  get isRunning(): boolean {
    return this.#isRunning;
  }

  get isIdle(): boolean {
    return this.#grants.wanted === 0;
  }

  /** Starts a spare thread for each manager that can start at the same time, or two if most tables may begin asleep. */
  preloadWorkers(): void {
    const { entries, parameters } = this.#configuration;
    const most = entries.length > fewManagers ? spareThreads : parameters["pg_conf.fetch"];
    this.#spareWorkers.keep(Math.min(entries.length, most));
  }

  /**
   * Starts a manager for each entry, a few at a time. Resolves when each manager either serves its table or has
   * reported why it cannot.
   */
  async start(options: Predecessor): Promise<void> {
    const { entries } = this.#configuration;
    this.#isRunning = true;
    await this.#addAll(entries, options);
    this.#hasStarted = true;
    this.#keepSpareWorkers();
  }

  /** At the start, and while tables wait for threads, these take turns in the threads that there are. */
  #keepSpareWorkers(): void {
    if (!this.#hasStarted) return;
    if (this.#turns.waiting > 0) this.#spareWorkers.keep(0, this.#turnsAtOnce);
    else this.#spareWorkers.keep(Math.min(this.#asleep.size, 1), spareThreads);
  }

  apply(configuration: Configuration, changes: ConfigurationChanges): void {
    const { isRunning } = this;
    this.#configuration = configuration;
    this.#startLimiter.limit = configuration.parameters["pg_conf.fetch"];
    this.#turns.limit = this.#turnsAtOnce;
    this.#grants.total = configuration.parameters["pg_conf.max"];
    this.#logShortage();
    if (!isRunning) return;
    for (const { key } of [...changes.removed, ...changes.restarted]) this.#remove(key);
    void this.#reconfigure(changes.kept);
    void this.#addAll([...changes.restarted, ...changes.added]);
  }

  /** A sleeping table is woken only if a manager would change something in it. */
  async #reconfigure(entries: readonly Entry[]): Promise<void> {
    const pairs = entries.flatMap((entry) => {
      const manager = this.#managers.get(entry.key);
      return manager === undefined ? [] : [{ entry, manager }];
    });
    const asleep = this.#isLarge ? pairs.filter(({ manager }) => manager.sleep.isAsleep) : [];
    const inOrder = await this.#examiner.findInOrder(asleep.map(({ entry }) => entry));
    for (const { entry, manager } of pairs) {
      if (inOrder.has(entry) && manager.keepAsleep(entry)) continue;
      void this.#startLimiter.run(async () => await manager.reconfigure(entry));
    }
  }

  retryOnServer(target: ConnectionTarget): void {
    for (const manager of this.#managers.values()) {
      if (shareServer(manager.target, target)) manager.retryNow();
    }
    this.#watches.retryOnServer(target);
  }

  /** Stops all managers. If `stop` is called again, the shorter grace period applies. */
  async stop(graceMs: number): Promise<void> {
    this.#hasStarted = false;
    this.#isRunning = false;
    this.#examiner.stop();
    for (const [key, manager] of this.#managers) this.#startStopping(key, manager, graceMs);
    this.#managers.clear();
    this.#asleep.clear();
    await Promise.all([
      this.#spareWorkers.terminate(),
      ...[...this.#stopping.keys()].map((manager) => manager.stop(graceMs)),
    ]);
  }

  /** Resolves when the managers of the removed entry with this key have ended. */
  async ended(key: string): Promise<void> {
    await Promise.all([...this.#stopping].flatMap(([manager, ended]) => (manager.entry.key === key ? [ended] : [])));
  }

  async claimingStopped(): Promise<void> {
    await Promise.all([...this.#stopping.keys()].map((manager) => manager.claimingStopped));
  }

  #remove(key: string): void {
    const manager = this.#managers.get(key);
    if (manager === undefined) return;
    this.#managers.delete(key);
    this.#asleep.delete(manager);
    this.#startStopping(key, manager, this.#configuration.parameters["pg_conf.grace"]);
  }

  #startStopping(key: string, manager: ManagerThread, graceMs: number): void {
    this.#stopping.set(manager, this.#stopManager(manager, graceMs));
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

  get #turnsAtOnce(): number {
    const { "pg_conf.fetch": fetch } = this.#configuration.parameters;
    return this.#isLarge ? Math.min(fetch, maxTurns) : fetch;
  }

  get #isLarge(): boolean {
    return this.#configuration.entries.length > fewManagers;
  }

  /** Tables that have nothing to do begin asleep. The others get their managers, a few at a time. */
  async #addAll(entries: readonly Entry[], predecessor = noPredecessor): Promise<void> {
    const managers = entries.map((entry) => this.#add(entry, predecessor));
    if (this.#isLarge) await this.#examiner.putToSleep(managers);
    await Promise.all(managers.map((manager) => this.#run(manager)));
  }

  async #run(manager: ManagerThread): Promise<void> {
    await this.#released.get(manager.entry.key);
    await this.#startLimiter.run(async () => {
      manager.start();
      await manager.settled;
    });
  }

  #add(entry: Entry, predecessor: Predecessor): ManagerThread {
    const manager = new ManagerThread(entry, {
      ...this.#options,
      spareWorkers: this.#spareWorkers,
      watches: this.#watches,
      managers: () => this.#configuration.entries.length,
      turns: this.#turns,
      ...predecessor,
    });
    this.#managers.set(entry.key, manager);
    this.#grants.join(manager, labelOfServers(entry.target));
    this.#options.board.follow(entry, manager);
    manager.on("message", (message) => this.#receive(manager, message));
    manager.on("disconnected", () => this.#probeOthers(manager));
    manager.on("asleep", () => {
      this.#asleep.add(manager);
      this.#grants.clear(manager);
      this.#keepSpareWorkers();
    });
    manager.on("ready", () => {
      this.#asleep.delete(manager);
      this.#keepSpareWorkers();
      this.retryOnServer(manager.target);
    });
    manager.on("died", () => this.#grants.clear(manager));
    return manager;
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
    this.#watches.probeOnServer(lost.target);
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
