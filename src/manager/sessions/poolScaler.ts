import { availableParallelism } from "node:os";
import { Backoff } from "../../shared/backoff.js";
import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import type { FromManager } from "../../shared/ipc/messages.js";
import type { ExecutorThreads } from "./executorThreads.js";
import { shortMs, type RunTimes } from "./runTimes.js";
import type { SessionPool } from "./sessionPool.js";
import { connectionRoom } from "./connectionRoom.sql.js";

/** How many sessions more than asked for are looked ahead for, at most. */
const mostLookAhead = 64;
/**
 * So many sessions keep the server busy with runs that only compute: more would only stand in each
 * other's way.
 */
const enoughToCompute = Math.max(4, 2 * availableParallelism());
/** For each ms that runs take: they wait for the disk, which can serve many at once. */
const morePerMs = 8;
const mostForShort = Math.max(32, enoughToCompute);
/** How often the supervisor is told that the server is full, in ms. */
const tellFullMs = 500;
/** After so long without anything to do a session ends, in ms. */
const mostIdleMs = 60_000;

/**
 * How many executor sessions there are: as many as tasks could use, within what the supervisor
 * grants and the server has room for; none in deep sleep.
 */
export class PoolScaler {
  readonly #sessions: SessionPool;
  readonly #executors: ExecutorThreads;
  readonly #runTimes: RunTimes;
  readonly #send: (message: Extract<FromManager, { type: "demand" | "full" | "held" }>) => void;
  readonly #log: Log;
  readonly #longestPauseMs: () => number;
  readonly #share: (room: number) => number;
  readonly #backoff = new Backoff({ firstMs: 100, maxMs: Infinity });
  #granted = 0;
  /** Of the last grant. */
  #grantNumber = 0;
  #demanded = 0;
  #answered = true;
  #short = false;
  /** When the supervisor was told last that the server is full. */
  #toldFullAt = -Infinity;
  #notBefore = 0;
  /** Whether one of those opened together last was refused. */
  #refused = false;
  /** Whether it was said that tasks wait since sessions are refused. */
  #saidRefused = false;

  constructor(options: {
    readonly sessions: SessionPool;
    readonly executors: ExecutorThreads;
    readonly runTimes: RunTimes;
    /** Tells the supervisor how many sessions could be used, how many are held, and that there is no room. */
    readonly send: (message: Extract<FromManager, { type: "demand" | "full" | "held" }>) => void;
    /** No pause before sessions are opened again is longer. */
    readonly longestPauseMs: () => number;
    /** How much of the server's room is there for sessions. */
    readonly share: (room: number) => number;
    readonly log: Log;
  }) {
    this.#sessions = options.sessions;
    this.#executors = options.executors;
    this.#runTimes = options.runTimes;
    this.#send = options.send;
    this.#longestPauseMs = options.longestPauseMs;
    this.#share = options.share;
    this.#log = options.log;
  }

  /** From now on there may be this many; to be followed by `letGo`. */
  grant(sessions: number, number: number): void {
    this.#granted = sessions;
    this.#grantNumber = number;
    this.#answered = false;
  }

  /** Gives up what is beyond the grant as it becomes free, and says when that is done. */
  letGo(): void {
    const { size, closing } = this.#sessions;
    if (size > this.#granted) this.#sessions.close(size - closing - this.#granted);
    else if (!this.#answered) {
      this.#answered = true;
      this.#send({ type: "held", sessions: size, number: this.#grantNumber });
    }
  }

  /** Whether there may be more sessions, as far as supervisor and server have not said otherwise. */
  get mayGrow(): boolean {
    const { size } = this.#sessions;
    const granted = size < this.#granted || (size === this.#granted && this.#demanded <= size);
    return granted && this.pauseMs === null;
  }

  /** What it goes by. */
  get state(): Readonly<Record<string, number | boolean | null>> {
    const { lookAhead, pauseMs } = this;
    return { granted: this.#granted, demanded: this.#demanded, lookAhead, pauseMs };
  }

  /** How many tasks it is worth looking for beyond those that find a free session. */
  get lookAhead(): number {
    const most = this.#brief
      ? Math.max(0, this.#enough + this.#sessions.slow - this.#sessions.size)
      : mostLookAhead;
    if (this.#sessions.size >= this.#granted && this.#asked) return 0;
    return Math.min(most, mostLookAhead);
  }

  /** Whether one more session may have something to do: one that the last turn left free, or that may be opened. */
  get mayUseMore(): boolean {
    if (this.start === 0) return false;
    if (this.#sessions.free > 0) return this.#sessions.anySpare;
    if (performance.now() < this.#notBefore) return false;
    return this.#sessions.size < this.#granted || !this.#asked;
  }

  get #asked(): boolean {
    return this.#demanded >= this.#sessions.size + mostLookAhead;
  }

  /** How many more sessions may have something to do: what short runs have no use for is left free. */
  get start(): number {
    if (!this.#brief) return Infinity;
    return Math.max(0, this.#enough + this.#sessions.slow - this.#sessions.busy);
  }

  /** How many sessions are tried beside those that a longer run holds up: as many again, since others may be long as well. */
  get #enough(): number {
    return Math.max(this.#enoughForShort, Math.min(this.#sessions.slow, mostForShort));
  }

  /** How many sessions short runs can use, beside those that a longer one holds up. */
  get #enoughForShort(): number {
    const waiting = Math.ceil(morePerMs * this.#runTimes.middle);
    return Math.min(mostForShort, Math.max(enoughToCompute, waiting));
  }

  /** Whether runs are short; also as long as there were too few of them to show what they are. */
  get #brief(): boolean {
    return !this.#shown || this.#runTimes.middle <= 2 * shortMs;
  }

  /** Whether there were enough runs to show how long they take. */
  get #shown(): boolean {
    return this.#runTimes.known() >= 4 * this.#sessions.size;
  }

  /** A session could not be opened. */
  refused(reason: string): void {
    this.#refused = true;
    if (!this.#saidRefused) this.#log.warn({ reason }, "no session could be opened, tasks wait");
    this.#saidRefused = true;
    // Those opened together are refused for one reason.
    if (performance.now() < this.#notBefore) return;
    const pauseMs = Math.min(this.#backoff.next(), this.#longestPauseMs());
    this.#notBefore = performance.now() + pauseMs;
    this.#log.debug({ pauseMs }, "no session is opened before a pause is over");
  }

  /** Opens sessions for `more` tasks that could start: few at first, more if those don't suffice. */
  async grow(client: Client, more: number): Promise<void> {
    const { size, opening, free } = this.#sessions;
    if (opening > 0 || performance.now() < this.#notBefore) return;
    if (more === 0) {
      // Otherwise they may be waiting behind what runs.
      if (free === 0) return;
      this.#saidRefused = false;
      this.#ask(size);
      return;
    }
    this.#ask(size + more);
    // It takes longer to be there than to be granted its sessions.
    if (this.#executors.threads.size === 0) this.#executors.start();
    const wanted = Math.min(more, Math.max(1, size), this.#granted - size);
    if (wanted <= 0) return;
    const room = Math.min(wanted, this.#share(await connectionRoom(client)));
    if (room < wanted) this.#tellFull(room);
    this.#refused = false;
    this.#sessions.open(room);
  }

  /** Ends sessions that a peak has left, and asks for them no more; the next tasks still find one that is open. */
  shrink(idleMs = mostIdleMs): void {
    const { size, closing, opening } = this.#sessions;
    this.#sessions.closeIdle(idleMs);
    if (opening === 0 && this.#sessions.closing > closing) this.#ask(size - this.#sessions.closing);
  }

  /** How long opening sessions has to wait, in ms; null when it need not. */
  get pauseMs(): number | null {
    const left = this.#notBefore - performance.now();
    return left > 0 ? left : null;
  }

  /** A session was opened; where others that were to be opened with it are refused there is no more room all the same. */
  succeeded(): void {
    if (this.#refused) return;
    this.#backoff.reset();
    this.#notBefore = 0;
  }

  /** Ends sessions and threads, in order. */
  async dismiss(): Promise<void> {
    this.#sessions.close();
    await this.#executors.end();
    this.#ask(0);
    this.#short = false;
    this.#saidRefused = false;
  }

  #ask(sessions: number): void {
    if (sessions === this.#demanded) return;
    this.#demanded = sessions;
    this.#send({ type: "demand", sessions });
  }

  #tellFull(room: number): void {
    const now = performance.now();
    if (now - this.#toldFullAt >= tellFullMs) {
      this.#toldFullAt = now;
      this.#send({ type: "full", room });
    }
    if (this.#short) return;
    this.#short = true;
    const message = "the server has no room for more connections, tasks wait";
    this.#log.warn({ sessions: this.#sessions.size }, message);
  }
}
