import { EventEmitter } from "eventemitter3";
import type { ClusterRole, ClusterView, ManagerView } from "../shared/clusterStatus.js";
import type { Entry } from "../shared/config/types.js";
import {
  addCounts,
  addDurations,
  addWebhooks,
  noCounts,
  noDurations,
  type ManagerStatistics,
} from "../shared/statistics.js";
import type { ManagerThreadEvents } from "./managerThread.js";

interface ClusterStatusEvents {
  /** The state of the manager of the entry with this key has changed, or, without one, the role of this process. */
  changed: [key?: string];
  /** The manager of the entry with this key has reported statistics. */
  worked: [key: string];
  /** Databases were released for maintenance, or are served again. */
  released: [];
}

type Released = Pick<ManagerView, "since"> & { readonly reason: NonNullable<ManagerView["reason"]> };

type Manager = EventEmitter<ManagerThreadEvents>;

const idle = { stalled: null, sessionsRefused: null, running: 0, overruns: 0, sessions: 0, shares: {} } as const;
const noWork = {
  ...idle,
  counts: noCounts,
  retries: {},
  webhooks: {},
  claims: noDurations,
  runs: noDurations,
  waits: noDurations,
};

/** Holds the state of this process and of its managers for the web page, the API and the metrics. */
export class ClusterStatusBoard extends EventEmitter<ClusterStatusEvents> implements ClusterView {
  /** By entry key. While a manager is being replaced, the old and the new manager share one key. */
  readonly #managers = new Map<string, ManagerView>();
  readonly #keys = new Map<Manager, string>();
  /** Of entries whose databases are released for maintenance. */
  #released: ReadonlyMap<string, Released> = new Map();
  #role: ClusterRole = "seeking";
  #ready = false;
  #since = new Date();
  /** Of the backend of the control connection. Null if the connection has ended. */
  controlPid: number | null = null;

  get role(): ClusterRole {
    return this.#role;
  }

  get ready(): boolean {
    return this.#ready;
  }

  get since(): Date {
    return this.#since;
  }

  manager(key: string): ManagerView | null {
    const view = this.#managers.get(key) ?? null;
    const released = this.#released.get(key);
    return released === undefined ? view : { ...noWork, ...view, state: "waiting", ...released };
  }

  releasedReason(key: string): string | null {
    return this.#released.get(key)?.reason.message ?? null;
  }

  /** @param released by entry key, the text that says so */
  setReleased(released: ReadonlyMap<string, string>): void {
    const before = this.#released;
    const changed = new Set([...before.keys(), ...released.keys()]).keys();
    this.#released = new Map(
      [...released].map(([key, message]) => {
        const known = before.get(key);
        if (known?.reason.message === message) return [key, known];
        return [key, { since: new Date(), reason: { code: "CONNECTION_RELEASED", message } }];
      }),
    );
    this.emit("released");
    for (const key of changed) this.emit("changed", key);
  }

  setRole(role: ClusterRole, { ready } = { ready: false }): void {
    if (role !== this.#role) this.#since = new Date();
    this.#role = role;
    this.#ready = ready;
    this.emit("changed");
  }

  follow({ key }: Pick<Entry, "key">, manager: Manager): void {
    this.#keys.set(manager, key);
    // When an entry's manager is replaced, the new manager's counters continue those of the old manager.
    const before = this.#managers.get(key) ?? noWork;
    this.#managers.set(key, { ...before, ...idle, state: "starting", since: new Date(), reason: null });
    this.emit("changed", key);
    manager.on("ready", () => this.#setState(manager, "working", null));
    manager.on("asleep", () => {
      this.#update(manager, (view) => ({ ...view, ...idle }));
      this.#setState(manager, "sleeping", null);
    });
    manager.on("unavailable", ({ code, message }) => this.#setState(manager, "waiting", { code, message }));
    manager.on("message", (message) => {
      if (message.type === "statistics") {
        this.#update(manager, (view) => withStatistics(view, message));
        this.emit("worked", key);
      } else if (message.type === "stalled") {
        this.#update(manager, (view) => ({ ...view, stalled: message.stall }));
        this.emit("changed", key);
      } else if (message.type === "sessionsRefused") {
        const { reason } = message;
        const sessionsRefused = reason === null ? null : { code: reason.code, message: reason.message };
        this.#update(manager, (view) => ({ ...view, sessionsRefused }));
        this.emit("changed", key);
      }
    });
    manager.on("died", () => this.#update(manager, (view) => ({ ...view, ...idle })));
  }

  forget(manager: Manager): void {
    const key = this.#keys.get(manager);
    this.#keys.delete(manager);
    if (key === undefined || [...this.#keys.values()].includes(key)) return;
    this.#managers.delete(key);
    this.emit("changed", key);
  }

  #setState(manager: Manager, state: ManagerView["state"], reason: ManagerView["reason"]): void {
    this.#update(manager, (view) => ({
      ...view,
      state,
      reason,
      since: view.state === state ? view.since : new Date(),
    }));
    this.emit("changed", this.#keys.get(manager));
  }

  #update(manager: Manager, change: (view: ManagerView) => ManagerView): void {
    const key = this.#keys.get(manager);
    const view = key === undefined ? undefined : this.#managers.get(key);
    if (key !== undefined && view !== undefined) this.#managers.set(key, change(view));
  }
}

function withStatistics(view: ManagerView, statistics: ManagerStatistics): ManagerView {
  const { counts, retries, webhooks, claims, runs, waits, running, overruns, sessions, shares } = statistics;
  return {
    ...view,
    counts: addCounts(view.counts, counts),
    retries: addCounts(view.retries, retries),
    webhooks: addWebhooks(view.webhooks, webhooks),
    claims: addDurations(view.claims, claims),
    runs: addDurations(view.runs, runs),
    waits: addDurations(view.waits, waits),
    running,
    overruns,
    sessions,
    shares,
  };
}
