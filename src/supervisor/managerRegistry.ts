import type { ConfigurationChanges } from "../shared/config/diffConfiguration.js";
import type { Configuration, ConnectionTarget, Entry } from "../shared/config/types.js";
import { SessionGrants } from "./sessionGrants.js";
import { Limiter } from "../shared/limiter.js";
import type { ClusterStatusBoard } from "./clusterStatusBoard.js";
import { ManagerThread, type ManagerThreadOptions } from "./managerThread.js";
import { SpareWorkers } from "./spareWorkers.js";

type RegistryOptions = Omit<ManagerThreadOptions, "spare" | "takesOver"> & {
  readonly board: ClusterStatusBoard;
};

/** The managers of the leader: one for each entry, and the sessions they share. */
export class ManagerRegistry {
  readonly #options: RegistryOptions;
  readonly #spare = new SpareWorkers();
  readonly #shares: SessionGrants<ManagerThread>;
  /** Of those that connect at the same moment. */
  readonly #atOnce: Limiter;
  /** By their entries' keys. */
  readonly #managers = new Map<string, ManagerThread>();
  readonly #leaving = new Set<ManagerThread>();
  /** When the last manager of a key that had to leave is gone. */
  readonly #gone = new Map<string, Promise<void>>();
  #configuration: Configuration;
  #short = false;

  constructor(configuration: Configuration, options: RegistryOptions) {
    this.#configuration = configuration;
    this.#options = options;
    this.#shares = new SessionGrants(
      configuration.parameters["pg_conf.max"],
      (manager, sessions, number) => manager.grant(sessions, number),
    );
    this.#atOnce = new Limiter(configuration.parameters["pg_conf.fetch"]);
  }

  get running(): boolean {
    return this.#managers.size > 0;
  }

  /** Whether no manager wants a session. */
  get idle(): boolean {
    return this.#shares.wanted === 0;
  }

  /** Has threads wait, so that `start` is quick; no more of them than start at once. */
  prepare(): void {
    const { entries, parameters } = this.#configuration;
    this.#spare.keep(Math.min(entries.length, parameters["pg_conf.fetch"]));
  }

  /**
   * Starts a manager for each entry, a few at once; resolves when each has served or waited once.
   *
   * @param how.takesOver whether there was another leader, who may have left tasks.
   */
  async start(how: { readonly takesOver: boolean }): Promise<void> {
    const { entries } = this.#configuration;
    await Promise.all(entries.map((entry) => this.#add(entry, how.takesOver)));
    await this.#spare.end();
  }

  /**
   * Goes by another configuration from now on: what is new starts, what is not there any more ends
   * within the grace, the rest is told its parameters. Tasks that run go on.
   */
  apply(configuration: Configuration, changes: ConfigurationChanges): void {
    const { running } = this;
    this.#configuration = configuration;
    this.#atOnce.limit = configuration.parameters["pg_conf.fetch"];
    this.#shares.total = configuration.parameters["pg_conf.max"];
    this.#sayShortage();
    if (!running) return;
    for (const { key } of [...changes.removed, ...changes.restarted]) this.#remove(key);
    for (const entry of changes.kept) {
      const manager = this.#managers.get(entry.key);
      void this.#atOnce.run(async () => await manager?.reconfigure(entry));
    }
    for (const entry of [...changes.restarted, ...changes.added]) void this.#add(entry);
  }

  /** This server has just let somebody in: those that wait for it try again at once. */
  retry({ host, port }: Pick<ConnectionTarget, "host" | "port">): void {
    for (const manager of this.#managers.values()) {
      const { target } = manager;
      if (target.host === host && target.port === port) manager.retry();
    }
  }

  /** Ends all managers; asked again, the shorter grace holds. */
  async stop(graceMs: number): Promise<void> {
    for (const [key, manager] of this.#managers) this.#leave(key, manager, graceMs);
    this.#managers.clear();
    await Promise.all([
      this.#spare.end(),
      ...[...this.#leaving].map((manager) => manager.stop(graceMs)),
    ]);
  }

  /** Resolves when no manager that was told to stop claims anything any more. */
  async released(): Promise<void> {
    await Promise.all([...this.#leaving].map((manager) => manager.released));
  }

  #remove(key: string): void {
    const manager = this.#managers.get(key);
    if (manager === undefined) return;
    this.#managers.delete(key);
    this.#leave(key, manager, this.#configuration.parameters["pg_conf.grace"]);
  }

  #leave(key: string, manager: ManagerThread, graceMs: number): void {
    this.#leaving.add(manager);
    const gone = this.#end(manager, graceMs, this.#gone.get(key));
    this.#gone.set(key, gone);
    // It hears of the stop first: then it keeps sessions until what came out of them is written.
    this.#shares.retire(manager);
  }

  async #end(manager: ManagerThread, graceMs: number, before?: Promise<void>): Promise<void> {
    await manager.stop(graceMs);
    this.#leaving.delete(manager);
    manager.emit("released");
    this.#shares.leave(manager);
    this.#options.board.forget(manager);
    await before;
  }

  async #add(entry: Entry, takesOver = false): Promise<void> {
    const manager = new ManagerThread(entry, { ...this.#options, spare: this.#spare, takesOver });
    this.#managers.set(entry.key, manager);
    this.#shares.join(manager, `${entry.target.host} ${entry.target.port}`);
    this.#options.board.follow(entry, manager);
    manager.on("demand", (sessions) => {
      this.#shares.demand(manager, sessions);
      this.#sayShortage();
    });
    manager.on("statistics", ({ sessions, running }) =>
      this.#shares.count(manager, { open: sessions, busy: running }),
    );
    manager.on("full", (room) => this.#shares.full(manager, room));
    manager.on("held", (sessions, number) => this.#shares.answer(manager, sessions, number));
    manager.on("ready", () => this.retry(manager.target));
    manager.on("died", () => this.#shares.clear(manager));
    await this.#gone.get(entry.key);
    await this.#atOnce.run(async () => {
      manager.start();
      await manager.answered;
    });
  }

  #sayShortage(): void {
    const { wanted, total } = this.#shares;
    if (wanted > total && !this.#short) {
      this.#options.log.warn(
        { wanted, "pg_conf.max": total },
        "more sessions wanted than granted, tasks wait",
      );
    }
    this.#short = wanted > total;
  }
}
