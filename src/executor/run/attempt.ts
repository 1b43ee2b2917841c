import type { OutputFormatter } from "../output/outputFormatter.js";
import type { RunCancellation } from "./cancellation.js";
import type { FinishContext } from "./proof.sql.js";
import { inputParameters } from "./inputParameters.js";
import type { Run } from "../../shared/ipc/run.js";
import type { Receive } from "../../shared/postgres/protocol/connection.js";
import type { Parameters } from "../../shared/postgres/protocol/encode.js";
import {
  decodeMicroseconds,
  timestampText,
  type ServerError,
  type TransactionStatus,
} from "../../shared/postgres/protocol/decode.js";
import { isUndefinedObject } from "../../shared/postgres/sqlStates.js";

/*
 * A run is sent to the server in one of two ways, pipelined or stepwise.
 *
 * Pipelined: settings, input, proof, commit and reset are sent in one write, without waiting for an answer.
 * Other runs can be sent right behind it. This way is taken if all of the following hold:
 * - The input contains no keyword that could end the transaction, cannot run in a transaction, reads from the
 *   client, or changes what finish (writing the proof) relies on (`isWrappable`). Nor does it contain anything
 *   that outlives a reset (`mayOutliveReset`).
 * - There is no short timeout, neither of the task nor of the session, and the task does not keep the session's
 *   state (`save`).
 * - The output limit leaves room for what may be in the network's buffers, and the output format has no
 *   escape.
 * - The session has the functions that the attempt calls. A remote server lacks these functions.
 *
 * Stepwise: what follows the input is sent only after the input has been answered. This way is taken for all
 * other runs. A pipelined attempt is also repeated in this way if finish was refused, if a timeout set by the
 * task interrupted finish, or if the output came near its limit.
 *
 * In both ways the input is wrapped, that is, preceded by BEGIN and followed by proof and COMMIT. The
 * exceptions are a task that is not atomic, an input that the server has refused in a transaction block, and
 * an input that starts its transaction itself.
 */

export interface AttemptForm {
  /** Whether everything is sent at once, without waiting for answers. */
  readonly pipelined: boolean;
  /** Whether BEGIN is sent before the input. */
  readonly sendsBegin: boolean;
  /** How the proof is written before the COMMIT. Null means that no proof is written. */
  readonly proof: FinishContext | null;
}

/** Events of a run, for the session's pipeline. */
export interface RunEvents {
  /** The server has begun to run the input. */
  started(): void;
  /** A cancel has been requested, which may also hit the runs behind this one. */
  cancelRequested(): void;
  /** No message of the current attempt is on the wire any more. */
  done(): void;
}

interface AttemptOptions {
  readonly output: OutputFormatter;
  readonly form: AttemptForm;
  readonly cancellation: RunCancellation;
  readonly events: RunEvents;
}

/** Receives messages that do not matter. */
export const ignore: Receive = () => {};

/** One try to execute a run: what is sent to the server, and the server's answers. */
export abstract class Attempt<Context = unknown> {
  readonly output: OutputFormatter;
  readonly form: AttemptForm;
  /** Time before the input, by the server's clock. Empty if the input was not reached. */
  start = "";
  /** Time after the end of the transaction, by the server's clock. Null if the clock was not read. */
  stop: string | null = null;
  /** Time from start to stop in ms. Null if the server's clock was not read in binary form. */
  durationMs: number | null = null;
  inputError: ServerError | null = null;
  finishError: ServerError | null = null;
  commitError: ServerError | null = null;
  /** The transaction status after the input. Null if the input did not run. */
  statusAfterInput: TransactionStatus | null = null;
  /** Whether the function that resets the session is missing. */
  protected isResetMissing = false;
  /** Whether the input itself ended a transaction, or rolled back to a savepoint. */
  inputEndedTransaction = false;
  /** Whether the effect was committed while the task's row was still in state WORK. */
  committed = false;
  /** Whether the effect was committed without a proof and without waiting for the WAL to be flushed to disk. */
  unflushed = false;
  protected readonly run: Run;
  /** The values of the input's parameters. Null if the input has no parameters, or the task has no args. */
  protected readonly parameters: Parameters | null;
  protected readonly context: Context;
  protected readonly cancellation: RunCancellation;
  readonly #events: RunEvents;
  /** Whether the settings are applied, so that the input runs under the settings of its own task. */
  protected settingsApplied = false;
  protected wasReset = false;
  /** Whether finish has written the proof. */
  protected isProofWritten = false;
  #hasTransactionEnded = false;
  #startUs = NaN;

  constructor(run: Run, context: Context, options: AttemptOptions) {
    this.run = run;
    this.parameters = run.args === null ? null : inputParameters(run.input, run.args);
    this.context = context;
    this.output = options.output;
    this.form = options.form;
    this.cancellation = options.cancellation;
    this.#events = options.events;
  }

  /**
   * Sends the attempt to the server.
   *
   * @param previous the attempt directly before this one on the wire, if its end was left open; otherwise null
   * @param keepOpen whether to leave the end of this attempt to the next attempt or to `close`. Only pipelined attempts
   * support this.
   */
  abstract send(previous: Attempt | null, keepOpen: boolean): void;

  /** Ends an attempt whose end was left open. */
  close(): void {}

  /** Whether the input has run, in its own transaction and under its own settings. */
  get hasRun(): boolean {
    return this.settingsApplied && this.statusAfterInput !== null;
  }

  get hasTransactionEnded(): boolean {
    return this.#hasTransactionEnded;
  }

  /** Whether an object that belongs to the table, such as a ledger or function, was missing. */
  get objectsMissing(): boolean {
    return this.isResetMissing || isObjectMissing(this.finishError);
  }

  /** Whether the session needs no repair (rollback and reset) after this attempt. */
  get isClean(): boolean {
    return this.wasReset && (this.stop !== null || !this.hasRun);
  }

  protected readonly onOpening: Receive = (event) => {
    if (event.type === "value" && event.bytes !== null) this.recordStart(event.bytes);
    else if (event.type === "passed") {
      this.settingsApplied = true;
      this.started();
    }
  };

  /** Records when the input starts, by the server's clock in binary form. */
  protected recordStart(clock: Buffer): void {
    this.#startUs = decodeMicroseconds(clock);
    this.start = timestampText(this.#startUs);
  }

  /** Records when the transaction has ended, by the server's clock in binary form. */
  protected recordStop(clock: Buffer): void {
    const stopUs = decodeMicroseconds(clock);
    this.stop = timestampText(stopUs);
    this.durationMs = (stopUs - this.#startUs) / 1000;
  }

  protected markTransactionEnded(): void {
    if (this.#hasTransactionEnded) return;
    this.#hasTransactionEnded = true;
    this.cancellation.suspend();
  }

  protected started(): void {
    this.cancellation.start();
    this.#events.started();
  }

  protected done(): void {
    // From here on, a repeated cancel would hit the session's reset or this run's next attempt.
    this.cancellation.suspend();
    this.#events.done();
  }
}

export const isObjectMissing = (error: ServerError | null): boolean => isUndefinedObject(error?.code);
