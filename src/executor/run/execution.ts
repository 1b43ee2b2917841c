import type { PgTaskError } from "../../shared/errors.js";
import type { Run, RunResult } from "../../shared/ipc/messages.js";
import { randomKey } from "../../shared/randomKey.js";
import type { Attempt, AttemptForm } from "./attempt.js";
import type { SpillBuffer } from "../../shared/spillBuffer.js";
import { RunCancellation, type CancelReason } from "./cancellation.js";
import { formatError, formatOwnError } from "./formatError.js";
import { beginsTransaction, isWrappable, mayLast, needsBlock } from "./classifyInput.js";
import { startTimer } from "../../shared/longTimer.js";
import { OutputFormatter } from "../output/outputFormatter.js";
import type { PipelinedMessages } from "./pipelinedMessages.js";
import type { FinishPlace } from "./sessionSql.js";
import { StepwiseAttempt, type StepwiseAttemptOptions } from "./stepwiseAttempt.js";
import {
  attemptOutcome,
  queryCanceled,
  retrialOf,
  rowChanged,
  type Circumstances,
  type Retrial,
  type AttemptOutcome,
} from "./attemptOutcome.js";
import { PipelinedAttempt } from "./pipelinedAttempt.js";
import type { ServerError } from "../../shared/postgres/protocol/messages.js";

/**
 * So much of an answer, in bytes, the way to us may hold: its end would be committed before we have read
 * all that. A run that is sent whole stays that far below what is allowed.
 */
const mostOnTheWay = 48 << 20;
/** With less output allowed than this, in bytes, nothing is sent behind an input before it has answered. */
const leastOutputOfWhole = 64 << 20;

/** A statement_timeout of the session's own below this, in ms, may hit what is sent around an input. */
const leastTimeoutOfWhole = 1_000;

/** Where a run takes place. */
export interface ExecutionContext extends StepwiseAttemptOptions {
  readonly outputLimit: number;
  /** Where the proof of its effect is entered, null when that is in another database. */
  readonly proof: FinishPlace | null;
  /** Asks for the session's backend to be cancelled; `cancelled` is the answer. */
  readonly cancel: () => void;
}

/** A result whose output, when that is large, is still where it was put together. */
export type OutgoingResult = RunResult & { readonly stored?: SpillBuffer };

/** How a run came out, and whether its session can be used any longer. */
export interface RunOutcome {
  readonly result: OutgoingResult;
  /** Why the session is of no use any more, null when it is. */
  readonly loss: PgTaskError | null;
}

/** Where on its wire a run is sent. */
export interface SendPlace {
  /** The one right before it that has been left open for it, null for none. */
  readonly previous: Execution | null;
  /** Whether another is to be sent right behind it. */
  readonly followed: boolean;
  /** Second key of the lock without which it does not begin behind another. */
  readonly permit: number;
}

/** What the lane that a run is on wants to know. */
export interface RunEvents {
  /** Its input is run from now on. */
  begun(): void;
  /** A cancel has been asked for: it may hit what is behind it. */
  endangering(): void;
  /** Nothing of this attempt is on the wire any more. */
  done(): void;
}

/** The server's own words, so that it does not matter which of the two clocks was first. */
export const timeoutMessage = "canceling statement due to statement timeout";
export const cancelMessage = "canceling statement due to user request";

/** Of output that was too large by less than what the way to us holds. */
const committedMeanwhile = "Its effect had been committed by then.";

/** One execution of one task on one session, in as many attempts as it takes. */
export class Execution {
  /** Whether others were before it when it came. */
  waited = false;
  readonly #run: Run;
  readonly #place: ExecutionContext;
  readonly #cancellation: RunCancellation;
  readonly #plain: boolean;
  /** Whether something of it may be left in its session, which no reset takes away. */
  readonly #lasting: boolean;
  #events: RunEvents = { begun() {}, endangering() {}, done() {} };
  #attempt: Attempt | null = null;
  #attempts = 0;
  #stepwise = false;
  #bare = false;
  #exposed = false;
  #recalled = false;
  #lock = 0;
  #timed = false;
  #stopTimer: () => void = () => {};

  constructor(run: Run, place: ExecutionContext) {
    this.#run = run;
    this.#place = place;
    // Escapes make more of an answer than has come.
    const mayBeWhole = place.outputLimit >= leastOutputOfWhole && run.format.escape === "";
    const { input, timeoutMs, save, atomic } = run;
    const plain = isWrappable(input) && (atomic || !needsBlock(input));
    const ownTimeoutMs = place.messages?.ownTimeoutMs ?? 0;
    const timed = timeoutMs > 0 || (ownTimeoutMs > 0 && ownTimeoutMs < leastTimeoutOfWhole);
    this.#lasting = !save && mayLast(input);
    this.#plain = mayBeWhole && !timed && !save && plain && !this.#lasting;
    this.#cancellation = new RunCancellation(() => {
      this.#events.endangering();
      place.cancel();
    });
  }

  get id(): string {
    return this.#run.id;
  }

  get session(): number {
    return this.#run.session;
  }

  /** Second key of the lock that its attempt takes when it begins. */
  get lock(): number {
    return this.#lock;
  }

  /** Whether it may be on the wire right behind another, and another right behind it. */
  get chainable(): boolean {
    return this.#whole !== null;
  }

  /** What this run needs of its session's reset. */
  get needs(): Pick<Run, "timeoutMs" | "save"> {
    return this.#run;
  }

  /** Makes the run end by a cancel; without effect when it has ended. */
  abort(): void {
    this.#cancellation.request("abort");
  }

  /** Makes the run end as one that a user cancelled; without effect when it has ended. */
  stop(): void {
    this.#cancellation.request("stop");
  }

  /** The answer to a cancel. */
  cancelled(): void {
    this.#place.wire.resume();
    this.#cancellation.answered();
  }

  /** It is to come back instead of being sent again. */
  recall(): void {
    this.#recalled = true;
  }

  /** A cancel that was meant for another may hit it. */
  expose(): void {
    this.#exposed = true;
  }

  /** Why it was first asked to end on our own account, null when it was not. */
  get cancelReason(): CancelReason | null {
    return this.#cancellation.reason;
  }

  /** Whether a cancel has been asked for and not been answered. */
  get endangering(): boolean {
    return this.#cancellation.underWay;
  }

  /** Resolves when no cancel is under way. */
  async settled(): Promise<void> {
    await this.#cancellation.settled();
  }

  /** What it has put out so far, and why no more of it could be taken, null when it could. */
  get output(): { readonly text: string | null; readonly failure: string | null } {
    return this.#attempt?.output ?? { text: null, failure: null };
  }

  /** The server's clock before the input; empty when it did not get there. */
  get start(): string {
    return this.#attempt?.start ?? "";
  }

  /** The last attempt. */
  get attempt(): Attempt | null {
    return this.#attempt;
  }

  /** Sends it; `done` is the end. When it is followed, `close` it if nothing follows after all. */
  send({ previous, followed, permit }: SendPlace, events: RunEvents): void {
    this.#events = events;
    this.#exposed = false;
    this.#attempts += 1;
    this.#lock = randomKey();
    this.drop();
    const { outputLimit } = this.#place;
    const output = new OutputFormatter(this.#run.format, outputLimit, () => this.#cut("output"));
    if (this.#whole !== null) output.foresee(mostOnTheWay, () => this.#cut("room"));
    const options = {
      output,
      form: this.#form(),
      events: {
        begun: () => this.#begun(),
        over: () => this.#cancellation.wait(),
        endangered: () => this.#cancellation.underWay,
        done: () => {
          // Asked for again it would hit the reset, or this run's next attempt.
          this.#cancellation.wait();
          events.done();
        },
      },
    };
    const { wire } = this.#place;
    const messages = this.#whole;
    this.#attempt =
      messages === null
        ? new StepwiseAttempt(this.#run, this.#place, options)
        : new PipelinedAttempt(this.#run, { wire, messages, lock: this.#lock, permit }, options);
    this.#attempt.send(previous?.attempt ?? null, followed);
  }

  /** Ends what was left open: nothing comes right behind it. */
  close(): void {
    this.#attempt?.close();
  }

  /** What becomes of it after an attempt. */
  verdict(): AttemptOutcome {
    return this.#attempt === null ? "returned" : attemptOutcome(this.#attempt, this.#circumstances);
  }

  get #circumstances(): Circumstances {
    const { reason } = this.#cancellation;
    return {
      reason: reason === "room" ? null : reason,
      crowded: reason === "room",
      exposed: this.#exposed,
      recalled: this.#recalled,
      attempts: this.#attempts,
    };
  }

  /** It is to be tried again. */
  renew(retrial: Retrial): void {
    if (retrial === "again") return;
    this.#cancellation.clear();
    this.#stepwise = true;
    this.#bare = retrial === "bare";
    this.#attempts = 0;
  }

  /** It is over: nothing is asked for any more. */
  end(): void {
    this.#stopTimer();
    this.#cancellation.end();
  }

  /** What it has put out is not wanted any more. */
  drop(): void {
    this.#attempt?.output.drop();
  }

  /**
   * How it came out, by the verdict; the clock of an end that the attempt did not read is `stop`. The
   * output goes along, and is not here any more.
   */
  result(verdict: "ended" | "returned", stop: string | null): OutgoingResult {
    const { session, id } = this.#run;
    const attempt = this.#attempt;
    const condition = {
      ...(this.#lasting && attempt?.ran === true ? { spoiled: true } : {}),
      ...(attempt?.lacking === true ? { lacking: true } : {}),
    };
    if (attempt === null || verdict === "returned") {
      this.drop();
      return { outcome: "returned", session, id, ...condition };
    }
    const error = this.#errorText(attempt);
    const { text, stored } = attempt.output.take();
    const { start, committed, unflushed } = attempt;
    return {
      outcome: "ended",
      session,
      id,
      start,
      stop: attempt.stop ?? stop,
      output: text ?? (error === null || stored !== null ? null : ""),
      error,
      committed,
      unflushed,
      ...(stored === null ? {} : { stored }),
      ...condition,
    };
  }

  /** What it is sent whole with, null when it is sent step by step. */
  get #whole(): PipelinedMessages | null {
    return this.#plain && !this.#stepwise ? this.#place.messages : null;
  }

  #form(): AttemptForm {
    const proof = this.#run.atomic && !this.#bare ? this.#place.proof : null;
    const whole = this.#whole !== null;
    // Nothing can tell a plain one from one that is as it was written.
    const begin = whole || (proof !== null && !beginsTransaction(this.#run.input));
    return { whole, begin, proof };
  }

  #begun(): void {
    this.#cancellation.begin();
    this.#events.begun();
    if (this.#run.timeoutMs === 0 || this.#timed) return;
    this.#timed = true;
    this.#stopTimer = startTimer(this.#run.timeoutMs, () => this.#cancellation.request("timeout"));
  }

  /** The server is kept from coming to the end of what is too much, until it has been cancelled. */
  #cut(reason: "output" | "room"): void {
    this.#cancellation.request(reason);
    if (this.#cancellation.underWay) this.#place.wire.pause();
  }

  #errorText(attempt: Attempt): string | null {
    const { input } = this.#run;
    const { failure } = attempt.output;
    if (failure !== null) {
      const committed = attempt.committed || attempt.unflushed;
      return formatOwnError(failure, input, committed ? committedMeanwhile : undefined);
    }
    const { inputError, finishError, endError } = attempt;
    if (inputError === null && finishError?.code === rowChanged) {
      return formatOwnError(`${finishError.message}, its effect is undone`, input);
    }
    const error = inputError ?? withoutPosition(finishError) ?? endError;
    if (error === null) return null;
    const { reason } = this.#circumstances;
    if (reason !== null && retrialOf(attempt, this.#circumstances) !== null) {
      return formatOwnError(reason === "timeout" ? timeoutMessage : cancelMessage, input);
    }
    return formatError(this.#ownWords(error), input);
  }

  #ownWords(error: ServerError): ServerError {
    const timedOut = error.code === queryCanceled && this.#cancellation.reason === "timeout";
    return timedOut ? { ...error, message: timeoutMessage } : error;
  }
}

/** It would be one in a text that the user does not know. */
function withoutPosition(error: ServerError | null): ServerError | null {
  if (error === null) return null;
  const { severity, code, message, detail, hint } = error;
  return {
    severity,
    code,
    message,
    ...(detail === undefined ? {} : { detail }),
    ...(hint === undefined ? {} : { hint }),
  };
}
