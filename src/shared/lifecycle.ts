import { EventEmitter } from "eventemitter3";
import { PgTaskError } from "./errors.js";
import type { Log } from "./log.js";

/**
 *   idle ──start──▶ starting ─────▶ running ──drain, stop──▶ draining ──stop──▶ stopping ─▶ stopped
 *    │                 │               │                                          ▲  ▲        ▲
 *    │                 │ stop, failure │ stop without grace, failure              │  │        │
 *    │                 │               └──────────────────────────────────────────┘  │        │
 *    │                 └─────────────────────────────────────────────────────────────┘        │
 *    └──stop, drain───────────────────────────────────────────────────────────────────────────┘
 *
 * Failure is no state, but the reason of a stop. Each state but idle is entered once at most.
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

/** What a component does in its states; each is called once at most, in this order. */
export interface LifecycleHooks {
  /** `signal`: a stop was asked for, so end soon, with or without an error. */
  start(signal: AbortSignal): Promise<void>;
  /**
   * Takes nothing new and waits until running work has ended.
   *
   * @param signal the grace is over: `stop` follows at once, whether this has ended or not
   * @param graceMs what is left of the grace, for children; Infinity while no stop was asked for
   */
  drain(signal: AbortSignal, graceMs: number): Promise<void>;
  /** Ends what still runs and gives everything back, also after a start that got halfway. */
  stop(): Promise<void>;
}

interface LifecycleEvents {
  /** The state now, and the one before. */
  state: [state: LifecycleState, previous: LifecycleState];
}

/** Starting and stopping of one component, whoever asks for it, when and how often. */
export class Lifecycle extends EventEmitter<LifecycleEvents> {
  /** Resolves in the end, with the failure that was the reason, or null. Never rejects. */
  readonly stopped: Promise<Error | null>;

  readonly #hooks: LifecycleHooks;
  readonly #name: string;
  readonly #log: Log | undefined;
  #state: LifecycleState = "idle";
  #reason: Error | null = null;

  readonly #started = new Outcome<void>();
  readonly #drained = new Outcome<void>();
  readonly #ended = new Outcome<Error | null>();
  /** Asked to drain or to stop. */
  readonly #leave = new AbortController();
  readonly #stop = new AbortController();
  readonly #graceOver = new AbortController();
  #deadlineMs = Infinity;
  #graceTimer: NodeJS.Timeout | undefined;

  /** `name` is the component's in messages. */
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

  /** The failure that is the reason of the stop, as soon as it is known. */
  get reason(): Error | null {
    return this.#reason;
  }

  /**
   * Resolves when it runs.
   *
   * @throws the failure that kept it from running, PgTaskError START_ABORTED when a stop did
   */
  start(): Promise<void> {
    if (this.#state === "idle") void this.#live();
    return this.#started.promise;
  }

  /**
   * Resolves when the work that ran has ended (or was cut short by a stop); then it waits for its
   * stop. During start it takes effect after it; before start it is a stop. Never rejects: what the
   * drain hook throws is the reason of a stop.
   */
  drain(): Promise<void> {
    if (this.#state === "idle") this.#neverStart();
    this.#leave.abort();
    return this.#drained.promise;
  }

  /**
   * Drains for `graceMs` (0 to 2147483647, or Infinity) at most, then stops. A start under way is
   * told to end and is waited for. Asked again, the earliest deadline holds. Never rejects.
   */
  stop(graceMs = 0): Promise<Error | null> {
    if (this.#state === "idle") this.#neverStart();
    this.#limitGrace(graceMs);
    this.#stop.abort();
    this.#leave.abort();
    return this.stopped;
  }

  /** Stops on account of a failure; the first one is the reason. */
  fail(error: Error, graceMs = 0): Promise<Error | null> {
    this.#blame(error);
    return this.stop(graceMs);
  }

  /** One pass through the states: their order is the order of these lines. */
  async #live(): Promise<void> {
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
      // Told to end, it may end with an error, which is none.
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

  /** Never rejects: what a hook throws stops the component, late as it may come. */
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
      this.#graceTimer = setTimeout(() => this.#graceOver.abort(), graceMs);
    }
  }

  #blame(error: Error): void {
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
      // Whoever listens must not break the order of the states.
      void this.fail(asError(error));
    }
  }
}

/** A promise that is settled from outside; what comes first holds, and nobody need listen. */
class Outcome<T> {
  readonly promise: Promise<T>;
  resolve!: (value: T) => void;
  reject!: (reason: Error) => void;

  constructor() {
    this.promise = new Promise<T>((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    // A failure is told by `stopped` too: it is not lost where nobody awaits this one.
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
  if (thrown instanceof Error) return thrown;
  return new PgTaskError("INTERNAL", `expected an Error to be thrown, got ${String(thrown)}`, {
    cause: thrown,
  });
}
