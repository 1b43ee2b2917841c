import { EventEmitter } from "eventemitter3";
import { longestTimerMs } from "./backoff.js";
import { isError, PgTaskError } from "./errors.js";
import type { Log } from "./log.js";

/**
 *   idle ──start──▶ starting ─────▶ running ──drain, stop──▶ draining ──stop──▶ stopping ─▶ stopped
 *    │                 │               │                                          ▲  ▲        ▲
 *    │                 │ stop, failure │ stop without grace, failure              │  │        │
 *    │                 │               └──────────────────────────────────────────┘  │        │
 *    │                 └─────────────────────────────────────────────────────────────┘        │
 *    └──stop, drain───────────────────────────────────────────────────────────────────────────┘
 *
 * A failure is not a state. It is the reason for a stop. Each state is entered at most once.
 */
export type LifecycleState = "idle" | "starting" | "running" | "draining" | "stopping" | "stopped";

const transitions: Readonly<Record<LifecycleState, readonly LifecycleState[]>> = {
  idle: ["starting", "stopped"],
  starting: ["running", "stopping"],
  running: ["draining", "stopping"],
  draining: ["stopping"],
  stopping: ["stopped"],
  stopped: [],
};

/** What a component does in each state. Each hook is called at most once, in this order. */
export interface LifecycleHooks {
  /**
   * Starts the component.
   *
   * @param signal aborted when a stop was requested; the hook should then return or throw soon
   */
  start(signal: AbortSignal): Promise<void>;
  /**
   * Accepts no new work and waits until running work has ended.
   *
   * @param signal aborted when the grace period is over; `stop` is then called at once, even if `drain` has not
   * returned
   * @param graceMs what is left of the grace period, for child components; Infinity while no stop has been requested
   */
  drain(signal: AbortSignal, graceMs: number): Promise<void>;
  /** Ends work that is still running and frees all resources. Also called after an incomplete start. */
  stop(): Promise<void>;
}

interface LifecycleEvents {
  /** The current state and the previous one. */
  state: [state: LifecycleState, previous: LifecycleState];
}

/** Starts and stops one component. All methods can be called at any time and repeatedly. */
export class Lifecycle extends EventEmitter<LifecycleEvents> {
  /**
   * Resolves when the component has stopped, with the failure that caused the stop, or null if there was none. Never
   * rejects.
   */
  readonly stopped: Promise<Error | null>;

  readonly #hooks: LifecycleHooks;
  readonly #name: string;
  readonly #log: Log | undefined;
  #state: LifecycleState = "idle";
  #reason: Error | null = null;

  readonly #started = new Deferred<void>();
  readonly #drained = new Deferred<void>();
  readonly #ended = new Deferred<Error | null>();
  /** Aborted when a drain or a stop was requested. */
  readonly #leave = new AbortController();
  readonly #stop = new AbortController();
  readonly #graceOver = new AbortController();
  #deadlineMs = Infinity;
  #graceTimer: NodeJS.Timeout | undefined;

  /** @param options.name name of the component in messages */
  constructor(hooks: LifecycleHooks, options: { readonly name: string; readonly log?: Log }) {
    super();
    this.#hooks = hooks;
    this.#name = options.name;
    this.#log = options.log;
    this.stopped = this.#ended.promise;
  }

  get state(): LifecycleState {
    return this.#state;
  }

  /** The failure that caused the stop; null if there was none. */
  get reason(): Error | null {
    return this.#reason;
  }

  /**
   * Starts the component. Resolves when it runs.
   *
   * @throws the failure of the start; START_ABORTED if the component was stopped before it ran
   */
  start(): Promise<void> {
    if (this.#state === "idle") void this.#run();
    return this.#started.promise;
  }

  /**
   * Drains the component. Resolves when running work has ended or was interrupted by a stop. A drained component then
   * waits for a stop. If the component is starting, the drain begins after the start. If it was never started, `drain`
   * acts as `stop`. Never rejects: if the drain hook fails, the component stops.
   */
  drain(): Promise<void> {
    if (this.#state === "idle") this.#neverStart();
    this.#leave.abort();
    return this.#drained.promise;
  }

  /**
   * Drains for at most `graceMs` (2147483647 even if it is more), then stops. A start in progress is aborted, and `stop`
   * waits for it to end. If `stop` is called several times, the earliest deadline applies. Never rejects.
   */
  stop(graceMs = 0): Promise<Error | null> {
    if (this.#state === "idle") this.#neverStart();
    this.#limitGrace(graceMs);
    this.#stop.abort();
    this.#leave.abort();
    return this.stopped;
  }

  /** Stops the component because of a failure. Only the first failure becomes the reason. */
  fail(error: Error, graceMs = 0): Promise<Error | null> {
    this.#recordFailure(error);
    return this.stop(graceMs);
  }

  /** Goes through the states in order. */
  async #run(): Promise<void> {
    this.#enter("starting");
    await this.#runStart();
    if (!this.#stop.signal.aborted) {
      this.#enter("running");
      this.#started.resolve();
      await aborted(this.#leave.signal);
      if (!this.#graceOver.signal.aborted) {
        this.#enter("draining");
        await this.#runDrain();
        await aborted(this.#stop.signal);
      }
    }
    this.#started.reject(this.#reason ?? this.#startAborted());
    this.#drained.resolve();
    clearTimeout(this.#graceTimer);
    this.#enter("stopping");
    await this.#attempt(() => this.#hooks.stop());
    this.#enter("stopped");
    this.#ended.resolve(this.#reason);
  }

  async #runStart(): Promise<void> {
    const { signal } = this.#stop;
    try {
      await this.#hooks.start(signal);
    } catch (error) {
      // A start that was aborted can throw. This is not a failure.
      if (signal.aborted) this.#log?.debug({ err: error }, `${this.#name}: start was aborted`);
      else void this.fail(asError(error));
    }
  }

  async #runDrain(): Promise<void> {
    const { signal } = this.#graceOver;
    const graceMs = Math.max(0, this.#deadlineMs - performance.now());
    const work = this.#attempt(() => this.#hooks.drain(signal, graceMs));
    await Promise.race([work, aborted(signal)]);
    this.#drained.resolve();
  }

  /** Calls a hook. Never rejects. If the hook fails, even late, the component stops because of this failure. */
  async #attempt(hook: () => Promise<void>): Promise<void> {
    try {
      await hook();
    } catch (error) {
      void this.fail(asError(error));
    }
  }

  #neverStart(): void {
    this.#enter("stopped");
    this.#started.reject(this.#reason ?? this.#startAborted());
    this.#drained.resolve();
    this.#ended.resolve(this.#reason);
  }

  #limitGrace(graceMs: number): void {
    const deadlineMs = performance.now() + graceMs;
    if (deadlineMs >= this.#deadlineMs) return;
    this.#deadlineMs = deadlineMs;
    clearTimeout(this.#graceTimer);
    if (graceMs <= 0) this.#graceOver.abort();
    else if (this.#state !== "stopping" && this.#state !== "stopped") {
      this.#graceTimer = setTimeout(() => this.#graceOver.abort(), Math.min(graceMs, longestTimerMs));
    }
  }

  #recordFailure(error: Error): void {
    this.#log?.error({ err: error }, `${this.#name} failed while it was ${this.#state}`);
    if (this.#state !== "stopped") this.#reason ??= error;
  }

  #startAborted(): PgTaskError {
    return new PgTaskError("START_ABORTED", `${this.#name} was stopped before it ran`);
  }

  #enter(state: LifecycleState): void {
    const previous = this.#state;
    if (!transitions[previous].includes(state)) {
      throw new PgTaskError("INTERNAL", `${this.#name} cannot go from ${previous} to ${state}`);
    }
    this.#state = state;
    this.#log?.debug({ state, previous }, `${this.#name} is ${state}`);
    try {
      this.emit("state", state, previous);
    } catch (error) {
      // An error in a listener must not interrupt the sequence of states.
      void this.fail(asError(error));
    }
  }
}

/** A promise that other code settles, once. */
class Deferred<T> {
  readonly promise: Promise<T>;
  resolve!: (value: T) => void;
  reject!: (reason: Error) => void;

  constructor() {
    this.promise = new Promise<T>((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    // A failure is also reported by `stopped`, so a caller need not handle the rejection of this promise.
    this.promise.catch(() => {});
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

function asError(thrown: unknown): Error {
  if (isError(thrown)) return thrown;
  return new PgTaskError("INTERNAL", `expected an Error to be thrown, got ${String(thrown)}`, {
    cause: thrown,
  });
}
