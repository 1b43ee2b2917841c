import { longestTimerMs } from "./backoff.js";
import { isError, PgTaskError } from "./errors.js";
import type { Log } from "./log.js";

/**
 *   idle ──start──▶ starting ─────▶ running ──────stop──────▶ draining ──▶ stopping ──▶ stopped
 *    │                 │               │                                   ▲  ▲           ▲
 *    │                 │ stop, failure │ stop without grace, failure       │  │           │
 *    │                 │               └───────────────────────────────────┘  │           │
 *    │                 └──────────────────────────────────────────────────────┘           │
 *    └──stop──────────────────────────────────────────────────────────────────────────────┘
 *
 * A failure is not a state. It is the reason for a stop. Each state is entered at most once.
 */
type LifecycleState = "idle" | "starting" | "running" | "draining" | "stopping" | "stopped";

/** Each hook is called at most once, in this order. */
export interface LifecycleHooks {
  /** @param signal aborted when a stop was requested; the hook should then return or throw soon */
  start(signal: AbortSignal): Promise<void>;
  /**
   * Accepts no new work and waits until running work has ended.
   *
   * @param signal aborted when the grace period is over; `stop` is then called at once
   * @param graceMs what is left of the grace period, for child components
   */
  drain(signal: AbortSignal, graceMs: number): Promise<void>;
  /** Ends what is still running and frees all resources, also after an incomplete start. */
  stop(): Promise<void>;
}

/** All methods can be called at any time and repeatedly. */
export class Lifecycle {
  /** Resolves when the component has stopped, with the failure that caused the stop, or null. Never rejects. */
  readonly stopped: Promise<Error | null>;
  readonly #hooks: LifecycleHooks;
  readonly #name: string;
  readonly #log: Pick<Log, "debug" | "error">;
  #state: LifecycleState = "idle";
  #reason: Error | null = null;
  readonly #started: Promise<void>;
  #setStarted: () => void = () => {};
  #setNotStarted: (reason: Error) => void = () => {};
  #setStopped: (reason: Error | null) => void = () => {};
  readonly #stop = new AbortController();
  readonly #graceOver = new AbortController();
  #deadlineMs = Infinity;
  #graceTimer: NodeJS.Timeout | undefined;

  constructor(hooks: LifecycleHooks, options: { readonly name: string; readonly log: Pick<Log, "debug" | "error"> }) {
    this.#hooks = hooks;
    this.#name = options.name;
    this.#log = options.log;
    this.stopped = new Promise((resolve) => (this.#setStopped = resolve));
    this.#started = new Promise((resolve, reject) => {
      this.#setStarted = resolve;
      this.#setNotStarted = reject;
    });
    // A failure is also reported by `stopped`, so a caller need not handle the rejection of this promise.
    this.#started.catch(() => {});
  }

  /**
   * Resolves when the component runs.
   *
   * @throws the failure of the start; START_ABORTED if the component was stopped before it ran
   */
  start(): Promise<void> {
    if (this.#state === "idle") void this.#run();
    return this.#started;
  }

  /**
   * Drains for at most `graceMs` (2147483647 even if it is more), then stops. A start in progress is aborted and
   * awaited. The earliest deadline of several calls applies. Never rejects.
   */
  stop(graceMs = 0): Promise<Error | null> {
    if (this.#state === "idle") this.#end();
    this.#limitGrace(graceMs);
    this.#stop.abort();
    return this.stopped;
  }

  /** Only the first failure becomes the reason. */
  fail(thrown: unknown): Promise<Error | null> {
    const error = isError(thrown) ? thrown : new PgTaskError("INTERNAL", String(thrown));
    this.#log.error({ err: error }, `${this.#name} failed while it was ${this.#state}`);
    if (this.#state !== "stopped") this.#reason ??= error;
    return this.stop();
  }

  async #run(): Promise<void> {
    const stop = this.#stop.signal;
    this.#enter("starting");
    try {
      await this.#hooks.start(stop);
    } catch (error) {
      // A start that was aborted can throw. This is not a failure.
      if (stop.aborted) this.#log.debug({ err: error }, `${this.#name}: start was aborted`);
      else void this.fail(error);
    }
    if (!stop.aborted) {
      this.#enter("running");
      this.#setStarted();
      await aborted(stop);
      if (!this.#graceOver.signal.aborted) await this.#drain(this.#graceOver.signal);
    }
    clearTimeout(this.#graceTimer);
    this.#enter("stopping");
    this.#rejectStart();
    await this.#attempt(() => this.#hooks.stop());
    this.#end();
  }

  async #drain(graceOver: AbortSignal): Promise<void> {
    this.#enter("draining");
    const graceMs = Math.max(0, this.#deadlineMs - performance.now());
    await Promise.race([this.#attempt(() => this.#hooks.drain(graceOver, graceMs)), aborted(graceOver)]);
  }

  /** Never rejects. If the hook fails, even late, the component stops because of it. */
  async #attempt(hook: () => Promise<void>): Promise<void> {
    try {
      await hook();
    } catch (error) {
      void this.fail(error);
    }
  }

  #end(): void {
    this.#enter("stopped");
    this.#rejectStart();
    this.#setStopped(this.#reason);
  }

  #rejectStart(): void {
    this.#setNotStarted(this.#reason ?? new PgTaskError("START_ABORTED", `${this.#name} was stopped before it ran`));
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

  #enter(state: LifecycleState): void {
    const previous = this.#state;
    this.#state = state;
    this.#log.debug({ state, previous }, `${this.#name} is ${state}`);
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
