import type { PgTaskError } from "../../shared/errors.js";
import type { Run, RunResult } from "../../shared/ipc/run.js";
import { randomLockKey } from "../../shared/postgres/advisoryLocks.js";
import type { SpillBuffer } from "../../shared/spillBuffer.js";
import { OutputFormatter } from "../output/outputFormatter.js";
import { minPipelinedOutputLimit, minPipelinedTimeoutMs } from "../tuning.js";
import type { Attempt, AttemptForm, RunEvents } from "./attempt.js";
import { decideOutcome, type AttemptOutcome, type Circumstances, type RetryForm } from "./attemptOutcome.js";
import { RunCancellation } from "./cancellation.js";
import { beginsTransaction, isWrappable, mayNeedTransactionBlock, mayOutliveReset } from "./classifyInput.js";
import { formatRunError } from "./formatError.js";
import { PipelinedAttempt } from "./pipelinedAttempt.js";
import type { PipelinedMessages } from "./pipelinedMessages.js";
import type { Proof } from "./proof.sql.js";
import { StepwiseAttempt, type StepwiseAttemptContext } from "./stepwiseAttempt.js";

export interface ExecutionContext extends StepwiseAttemptContext {
  readonly outputLimit: number;
  /** Null means that there is no proof, because a remote server has no ledger. */
  readonly proof: Proof | null;
  readonly requestCancel: () => void;
}

/** A large output is still in the buffer in which it was collected. */
export type OutgoingResult = RunResult & { readonly spilledOutput?: SpillBuffer };

export interface RunOutcome {
  readonly result: OutgoingResult;
  readonly loss: PgTaskError | null;
}

export interface SendOptions {
  readonly previous: Execution | null;
  readonly isFollowed: boolean;
  readonly permit: number;
}

/**
 * One execution of one task in one session. Makes as many attempts as it takes.
 *
 *     waiting ──send──▶ on the wire ──done──▶ answered ──end──▶ over
 *        ▲                                       │
 *        └─────────────prepareRetry──────────────┘
 *
 * If the connection is lost while the run is on the wire, `end` is called without `done`.
 */
export class Execution {
  wasQueued = false;
  reportsStart = false;
  readonly run: Run;
  readonly cancellation: RunCancellation;
  /** If it has not run, it is then released rather than retried. */
  isRecalled = false;
  /** Whether a cancel meant for another run may have hit the current attempt. */
  isExposed = false;
  lockKey = 0;
  attempt: Attempt | null = null;
  readonly #context: ExecutionContext;
  readonly #canPipeline: boolean;
  readonly #mayOutliveReset: boolean;
  #events: RunEvents = { started() {}, cancelRequested() {}, done() {} };
  #attempts = 0;
  #isStepwise = false;
  #isUnwrapped = false;

  constructor(run: Run, context: ExecutionContext) {
    this.run = run;
    this.#context = context;
    const { input, timeoutMs, save, atomic, escape } = run;
    // If characters are escaped, the output is larger than the server's answer by an unknown amount.
    const isOutputSafe = context.outputLimit >= minPipelinedOutputLimit && escape === "";
    const isInputSafe = isWrappable(input) && (atomic || !mayNeedTransactionBlock(input));
    const sessionTimeoutMs = context.messages?.sessionTimeoutMs ?? 0;
    const hasShortTimeout = isShortTimeout(timeoutMs) || isShortTimeout(sessionTimeoutMs);
    this.#mayOutliveReset = !save && mayOutliveReset(input);
    this.#canPipeline = isOutputSafe && !hasShortTimeout && !save && isInputSafe && !this.#mayOutliveReset;
    this.cancellation = new RunCancellation(timeoutMs, () => {
      this.#events.cancelRequested();
      context.requestCancel();
    });
  }

  get id(): string {
    return this.run.id;
  }

  /** Whether it can be sent directly behind another run, and another run directly behind it. */
  get isChainable(): boolean {
    return this.#pipelinedMessages !== null;
  }

  abort(): void {
    this.cancellation.request("abort");
  }

  /** Lets the run end with the error of a cancelled statement. */
  stop(): void {
    this.cancellation.request("stop");
  }

  cancelAnswered(): void {
    this.#context.wire.resume();
    this.cancellation.cancelAnswered();
  }

  /** If `isFollowed` was true but no run follows after all, the caller must call `close`. */
  send({ previous, isFollowed, permit }: SendOptions, events: RunEvents): void {
    this.#events = events;
    this.isExposed = false;
    this.#attempts += 1;
    this.lockKey = randomLockKey();
    this.discardOutput();
    const { wire } = this.#context;
    const messages = this.#pipelinedMessages;
    const output = new OutputFormatter(this.run, this.#context.outputLimit, {
      failed: () => this.#cutOff("output"),
      near: messages === null ? null : () => this.#cutOff("outputNearLimit"),
    });
    const { lockKey, cancellation } = this;
    const options = { output, form: this.#form(), cancellation, events };
    this.attempt =
      messages === null
        ? new StepwiseAttempt(this.run, this.#context, options)
        : new PipelinedAttempt(this.run, { wire, messages, lockKey, permit }, options);
    this.attempt.send(previous?.attempt ?? null, isFollowed);
  }

  close(): void {
    this.attempt?.close();
  }

  outcome(): AttemptOutcome {
    return this.attempt === null ? "released" : decideOutcome(this.attempt, this.#circumstances);
  }

  get #circumstances(): Circumstances {
    const { reason } = this.cancellation;
    return {
      cancelReason: reason === "outputNearLimit" ? null : reason,
      outputNearLimit: reason === "outputNearLimit",
      exposed: this.isExposed,
      recalled: this.isRecalled,
      attempts: this.#attempts,
    };
  }

  prepareRetry(form: RetryForm): void {
    if (form === "same") return;
    this.cancellation.clearForRetry();
    this.#isStepwise = true;
    this.#isUnwrapped = form === "unwrapped";
    this.#attempts = 0;
  }

  discardOutput(): void {
    this.attempt?.output.discard();
  }

  /** Hands over the output. `stop` is used if the attempt itself did not read the server's clock at its end. */
  result(outcome: "ended" | "released", stop: string | null): OutgoingResult {
    const { session, id } = this.run;
    const attempt = this.attempt;
    const condition = {
      ...(this.#mayOutliveReset && attempt?.hasRun === true ? { stale: true } : {}),
      ...(attempt?.objectsMissing === true ? { objectsMissing: true } : {}),
    };
    if (attempt === null || outcome === "released") {
      this.discardOutput();
      return { outcome: "released", session, id, ...condition };
    }
    const { error, sqlstate } = formatRunError(attempt, this.#circumstances, this.run.input);
    const { text, spilled } = attempt.output.take();
    const { start, committed, unflushed } = attempt;
    return {
      outcome: "ended",
      session,
      id,
      start,
      stop: attempt.stop ?? stop,
      output: text ?? (error === null || spilled !== null ? null : ""),
      error,
      sqlstate,
      committed,
      unflushed,
      ...(spilled === null ? {} : { spilledOutput: spilled }),
      ...condition,
    };
  }

  /** Null if the next attempt is stepwise. */
  get #pipelinedMessages(): PipelinedMessages | null {
    return this.#canPipeline && !this.#isStepwise ? this.#context.messages : null;
  }

  #form(): AttemptForm {
    const proof = this.run.atomic && !this.#isUnwrapped ? this.#context.proof : null;
    const pipelined = this.#pipelinedMessages !== null;
    // An input that can be pipelined behaves the same in pg-task's transaction as in a transaction of its own.
    const sendsBegin = pipelined || (proof !== null && !beginsTransaction(this.run.input));
    return { pipelined, sendsBegin, proof };
  }

  /** Cancels a run with too much output. Until that is answered, nothing more is read, so the run cannot end. */
  #cutOff(reason: "output" | "outputNearLimit"): void {
    this.cancellation.request(reason);
    if (this.cancellation.isPending) this.#context.wire.pause();
  }
}

const isShortTimeout = (ms: number): boolean => ms > 0 && ms < minPipelinedTimeoutMs;
