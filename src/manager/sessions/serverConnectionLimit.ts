import { Backoff } from "../../shared/backoff.js";
import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import type { ExecutorThreads, ExecutorThread } from "./executorThreads.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { SessionPool } from "./sessionPool.js";
import { connectionRoom } from "./connectionRoom.sql.js";

/** Pauses before groups that wait for room are looked at again, in ms. */
const pauseMs = { first: 20, longest: 1_000 };
/** For so long after one has waited sessions leave room for what their tasks may need beside them, in ms. */
const calmMs = 5_000;
/** Room for a single connection that nobody has taken for so long is not wanted by a session for its task, in ms. */
const unwantedMs = 50;

/**
 * Room on the manager's own server for the connections of remote tasks that lead to it, of which each
 * needs one beside its session's. One that finds no room goes back to PLAN, and its group waits here:
 *
 *     due ──claimed, asks──▶ room ──▶ runs
 *      ▲                       │ none, or refused by the server
 *      └──room for a pair── group waits
 *
 * Sessions that have nothing to do are ended for those that wait, since two sessions that both wait for
 * the room that the other takes would wait for ever.
 */
export class ServerConnectionLimit {
  readonly #executors: ExecutorThreads;
  readonly #sessions: SessionPool;
  readonly #groups: ActiveGroups;
  readonly #log: Log;
  #asked: { readonly thread: ExecutorThread; readonly number: number }[] = [];
  /** Connections that may be opened, and are perhaps not seen on the server yet. */
  readonly #granted = new Map<ExecutorThread, Set<number>>();
  /** Groups that wait, the first to come first. */
  readonly #waiting = new Set<number>();
  readonly #backoff = new Backoff({ firstMs: pauseMs.first, maxMs: pauseMs.longest });
  #lookAt = 0;
  #crowdedAt = -Infinity;
  /** Since when there has been room that nobody has taken. */
  #roomSince = Infinity;

  constructor(options: {
    readonly executors: ExecutorThreads;
    readonly sessions: SessionPool;
    readonly groups: ActiveGroups;
    readonly log: Log;
  }) {
    this.#executors = options.executors;
    this.#sessions = options.sessions;
    this.#groups = options.groups;
    this.#log = options.log;
  }

  /** A thread asks for room for one connection. */
  ask(thread: ExecutorThread, number: number): void {
    this.#asked.push({ thread, number });
  }

  /** What was granted is used, or not needed any more. */
  entered(thread: ExecutorThread, number: number, open: boolean): void {
    this.#granted.get(thread)?.delete(number);
    if (open) this.#backoff.reset();
  }

  threadEnded(thread: ExecutorThread): void {
    this.#asked = this.#asked.filter((each) => each.thread !== thread);
    this.#granted.delete(thread);
  }

  /** A task of this group came back since there was no room. */
  crowded(hash: number): void {
    this.#groups.withhold(hash);
    this.#waiting.add(hash);
    const now = performance.now();
    if (now - this.#crowdedAt >= calmMs)
      this.#log.warn({}, "the server has no room for more connections of remote tasks, they wait");
    this.#crowdedAt = now;
    // Those that are refused together wait together.
    if (now >= this.#lookAt) this.#lookAt = now + this.#backoff.next();
  }

  /** Whether groups wait. */
  get waiting(): boolean {
    return this.#waiting.size > 0;
  }

  /** When they are to be looked at again, in ms. */
  get pauseMs(): number {
    return this.waiting ? Math.max(1, this.#lookAt - performance.now()) : Infinity;
  }

  /** How much of the server's room is there for sessions. */
  forSessions(room: number): number {
    const left = Math.max(0, room - this.#open());
    const now = performance.now();
    if (!this.waiting && now - this.#crowdedAt >= calmMs) return left;
    this.#roomSince = left === 0 ? Infinity : Math.min(this.#roomSince, now);
    const unwanted = this.#sessions.size === 0 || now - this.#roomSince >= unwantedMs;
    return unwanted ? Math.ceil(left / 2) : Math.floor(left / 2);
  }

  /** Answers who asked, and lets groups go on for which there is room. */
  async settle(client: Client): Promise<void> {
    const due = this.waiting && performance.now() >= this.#lookAt;
    if (this.#asked.length === 0 && !due) return;
    let room = (await connectionRoom(client)) - this.#sessions.opening - this.#open();
    for (const { thread, number } of this.#asked.splice(0)) {
      const granted = room > 0;
      if (granted) {
        room -= 1;
        this.#grant(thread, number);
      }
      this.#executors.tell(thread, { type: "room", number, room: granted });
    }
    if (due) this.#release(room);
  }

  #release(room: number): void {
    const { free, closing } = this.#sessions;
    const surplus = Math.floor((free - room - closing) / 2);
    if (surplus > 0) this.#sessions.close(surplus);
    const pairs = free > 0 ? room : Math.floor(room / 2);
    for (const hash of [...this.#waiting].slice(0, Math.max(0, pairs))) {
      this.#waiting.delete(hash);
      this.#groups.allow(hash);
    }
    if (this.waiting) this.#lookAt = performance.now() + pauseMs.first;
  }

  #grant(thread: ExecutorThread, number: number): void {
    const granted = this.#granted.get(thread);
    if (granted === undefined) this.#granted.set(thread, new Set([number]));
    else granted.add(number);
  }

  #open(): number {
    let count = 0;
    for (const granted of this.#granted.values()) count += granted.size;
    return count;
  }
}
