import { EventEmitter } from "eventemitter3";
import type { ClusterRole, ClusterView, ManagerView } from "../shared/clusterStatus.js";
import type { Entry } from "../shared/config/types.js";
import { addCounts, addDurations, noCounts, noDurations } from "../shared/statistics.js";
import type { ManagerThread } from "./managerThread.js";

interface ManagerBoardEvents {
  /** The role, or a manager's state, is another one. */
  changed: [];
  /** The manager with this key did something. */
  worked: [key: string];
}

/** What is known here of the cluster and the managers, for those who ask or want to be told. */
export class ClusterStatusBoard extends EventEmitter<ManagerBoardEvents> implements ClusterView {
  /** By their entries' keys; one that has to leave may still be there when the next one is. */
  readonly #managers = new Map<string, ManagerView>();
  readonly #followed = new Map<ManagerThread, string>();
  #role: ClusterRole = "seeking";
  #ready = false;
  #since = new Date();

  get role(): ClusterRole {
    return this.#role;
  }

  get ready(): boolean {
    return this.#ready;
  }

  get since(): Date {
    return this.#since;
  }

  /** The manager of an entry; null when none works here. */
  manager(key: string): ManagerView | null {
    return this.#managers.get(key) ?? null;
  }

  play(role: ClusterRole, { ready } = { ready: false }): void {
    if (role !== this.#role) this.#since = new Date();
    this.#role = role;
    this.#ready = ready;
    this.emit("changed");
  }

  follow({ key }: Entry, manager: ManagerThread): void {
    this.#followed.set(manager, key);
    this.#put(key, {
      state: "starting",
      since: new Date(),
      reason: null,
      stalled: null,
      running: 0,
      sessions: 0,
      counts: noCounts,
      claims: noDurations,
      runs: noDurations,
    });
    manager.on("ready", () => this.#enter(manager, "working", null));
    manager.on("waiting", ({ message }) => this.#enter(manager, "waiting", message));
    manager.on("statistics", ({ counts, claims, runs, running, sessions }) => {
      this.#change(manager, (view) => ({
        ...view,
        counts: addCounts(view.counts, counts),
        claims: addDurations(view.claims, claims),
        runs: addDurations(view.runs, runs),
        running,
        sessions,
      }));
      this.emit("worked", key);
    });
    manager.on("stalled", (stalled) => {
      this.#change(manager, (view) => ({ ...view, stalled }));
      this.emit("changed");
    });
    manager.on("died", () =>
      this.#change(manager, (view) => ({ ...view, stalled: null, running: 0, sessions: 0 })),
    );
  }

  forget(manager: ManagerThread): void {
    const key = this.#followed.get(manager);
    this.#followed.delete(manager);
    if (key === undefined || [...this.#followed.values()].includes(key)) return;
    this.#managers.delete(key);
    this.emit("changed");
  }

  #enter(manager: ManagerThread, state: ManagerView["state"], reason: string | null): void {
    this.#change(manager, (view) => ({
      ...view,
      state,
      reason,
      since: view.state === state ? view.since : new Date(),
    }));
    this.emit("changed");
  }

  #change(manager: ManagerThread, change: (view: ManagerView) => ManagerView): void {
    const key = this.#followed.get(manager);
    const view = key === undefined ? undefined : this.#managers.get(key);
    if (key !== undefined && view !== undefined) this.#managers.set(key, change(view));
  }

  #put(key: string, fresh: ManagerView): void {
    // Counters go on when an entry's manager is replaced by another one.
    const { counts, claims, runs } = this.#managers.get(key) ?? fresh;
    this.#managers.set(key, { ...fresh, counts, claims, runs });
    this.emit("changed");
  }
}
