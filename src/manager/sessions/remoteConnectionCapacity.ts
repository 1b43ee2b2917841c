import { Backoff } from "../../shared/backoff.js";
import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import type { ExecutorThreads, ExecutorThread } from "./executorThreads.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { SessionPool } from "./sessionPool.js";
import { availableConnections } from "./availableConnections.sql.js";
import { connectionRetryMs, connectionUnusedMs, remoteReserveMs } from "../model/tuning.js";

interface ConnectionRequest {
  readonly thread: ExecutorThread;
  readonly number: number;
}

interface RemoteConnectionCapacityOptions {
  readonly executors: ExecutorThreads;
  readonly sessions: SessionPool;
  readonly groups: ActiveGroups;
  readonly log: Log;
}

/**
 * Limits the connections that remote tasks open to the manager's own server. Such a task needs a second one besides that
 * of its session. If there is no capacity for it, the task is released and its group waits here:
 *
 *     due ──claimed, requests──▶ capacity ──▶ runs
 *      ▲                            │ none, or the server refuses
 *      └──capacity for a pair── group waits
 *
 * Free sessions are closed for the benefit of waiting groups. Otherwise two sessions, each with a remote task, would
 * wait forever for each other's connection.
 */
export class RemoteConnectionCapacity {
  readonly #options: RemoteConnectionCapacityOptions;
  #requests: ConnectionRequest[] = [];
  /** Granted requests whose connections the server may not list yet. */
  #reserved: ConnectionRequest[] = [];
  /** Group hashes, in the order in which the groups began to wait. */
  readonly #waitingGroups = new Set<number>();
  readonly #backoff = new Backoff({
    firstMs: connectionRetryMs.first,
    maxMs: connectionRetryMs.max,
  });
  #nextCheckAt = 0;
  #lastRefusedAt = -Infinity;
  /** The time since which connections have been available; Infinity if there are none. */
  #capacitySince = Infinity;

  constructor(options: RemoteConnectionCapacityOptions) {
    this.#options = options;
  }

  request(thread: ExecutorThread, number: number): void {
    this.#requests.push({ thread, number });
  }

  /** @param open true if the connection is open now, false if it is no longer needed */
  endReservation(thread: ExecutorThread, number: number, open: boolean): void {
    this.#reserved = this.#reserved.filter((each) => each.thread !== thread || each.number !== number);
    if (open) this.#backoff.reset();
  }

  threadEnded(thread: ExecutorThread): void {
    this.#requests = this.#requests.filter((each) => each.thread !== thread);
    this.#reserved = this.#reserved.filter((each) => each.thread !== thread);
  }

  /** A remote task of the group was released for lack of connections. */
  deferGroup(hash: number): void {
    this.#options.groups.withhold(hash);
    this.#waitingGroups.add(hash);
    const now = performance.now();
    if (now - this.#lastRefusedAt >= remoteReserveMs)
      this.#options.log.warn({}, "connection limit of the server reached, remote tasks wait");
    this.#lastRefusedAt = now;
    // Groups that are refused at the same time share one delay.
    if (now >= this.#nextCheckAt) this.#nextCheckAt = now + this.#backoff.next();
  }

  get hasWaiting(): boolean {
    return this.#waitingGroups.size > 0;
  }

  get pauseMs(): number {
    return this.hasWaiting ? Math.max(1, this.#nextCheckAt - performance.now()) : Infinity;
  }

  async sessionShare(client: Client): Promise<number> {
    const free = Math.max(0, await this.#available(client));
    const now = performance.now();
    if (!this.hasWaiting && now - this.#lastRefusedAt >= remoteReserveMs) return free;
    this.#capacitySince = free === 0 ? Infinity : Math.min(this.#capacitySince, now);
    const canRoundUp = this.#options.sessions.size === 0 || now - this.#capacitySince >= connectionUnusedMs;
    return canRoundUp ? Math.ceil(free / 2) : Math.floor(free / 2);
  }

  async answerRequests(client: Client): Promise<void> {
    const due = this.hasWaiting && performance.now() >= this.#nextCheckAt;
    if (this.#requests.length === 0 && !due) return;
    const { opening } = this.#options.sessions;
    let capacity = (await this.#available(client)) - opening;
    for (const request of this.#requests.splice(0)) {
      const { thread, number } = request;
      const granted = capacity > 0;
      if (granted) {
        capacity -= 1;
        this.#reserved.push(request);
      }
      this.#options.executors.send(thread, { type: "connectionPermit", number, granted });
    }
    if (due) this.#releaseGroups(capacity);
  }

  /** Connections that are not reserved. The server may have counted before a reserved one was opened. */
  async #available(client: Client): Promise<number> {
    const reserved = this.#reserved.length;
    return (await availableConnections(client)) - reserved;
  }

  #releaseGroups(capacity: number): void {
    const { free, closing } = this.#options.sessions;
    const surplus = Math.floor((free - capacity - closing) / 2);
    if (surplus > 0) this.#options.sessions.closeFree(surplus);
    const pairs = free > 0 ? capacity : Math.floor(capacity / 2);
    for (const hash of [...this.#waitingGroups].slice(0, Math.max(0, pairs))) {
      this.#waitingGroups.delete(hash);
      this.#options.groups.allow(hash);
    }
    if (this.hasWaiting) this.#nextCheckAt = performance.now() + connectionRetryMs.first;
  }
}
