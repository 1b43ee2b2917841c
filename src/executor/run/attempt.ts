import type { OutputFormatter } from "../output/outputFormatter.js";
import type { RunCancellation } from "./cancellation.js";
import type { Proof } from "./proof.sql.js";
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
 * A run is sent in one of two ways.
 *
 * Pipelined: settings, input, proof, commit and reset are sent in one write, and other runs right behind it. This needs:
 * - an input without keywords that could end the transaction, cannot run in one, read from the client, or change what
 *   finish (writing the proof) relies on (`isWrappable`), and without what outlives a reset (`mayOutliveReset`);
 * - no short timeout of the task or session, no `save`, an output limit above what may be in the network's buffers, and
 *   no escape in the output format;
 * - the functions that the attempt calls, which a remote server lacks.
 *
 * Stepwise: what follows the input is sent after it has been answered. A pipelined attempt is repeated in this way if
 * finish was refused, if a timeout set by the task interrupted it, or if the output came near its limit.
 *
 * Either way, the input is preceded by BEGIN and followed by proof and COMMIT, unless the task is not atomic, the server
 * has refused the input in a transaction block, or the input starts its transaction itself.
 */

export interface AttemptForm {
  readonly pipelined: boolean;
  readonly sendsBegin: boolean;
  /** Null means that no proof is written. */
  readonly proof: Proof | null;
}

export interface RunEvents {
  /** The server has begun to run the input. */
  started(): void;
  /** A cancel has been requested, which may also hit the runs behind this one. */
  cancelRequested(): void;
  /** Nothing of the current attempt is on the wire any more. */
  done(): void;
}

interface AttemptOptions {
  readonly output: OutputFormatter;
  readonly form: AttemptForm;
  readonly cancellation: RunCancellation;
  readonly events: RunEvents;
}

export const ignore: Receive = () => {};

/** One try to execute a run: what is sent to the server, and the server's answers. */
export abstract class Attempt<Context = unknown> {
  readonly output: OutputFormatter;
  readonly form: AttemptForm;
  /** Time before the input, by the server's clock. Empty if the input was not reached. */
  start = "";
  /** Time after the end of the transaction, by the server's clock. Null if the clock was not read. */
  stop: string | null = null;
  durationMs: number | null = null;
  inputError: ServerError | null = null;
  finishError: ServerError | null = null;
  commitError: ServerError | null = null;
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
  /** Null if the input has no parameters, or the task no args. */
  protected readonly parameters: Parameters | null;
  protected readonly context: Context;
  protected readonly cancellation: RunCancellation;
  readonly #events: RunEvents;
  /** Whether the settings are applied, so that the input runs under the settings of its own task. */
  protected settingsApplied = false;
  protected wasReset = false;
  protected isProofWritten = false;
  /** Whether proof and COMMIT have been sent, so that the effect may be committed if the connection is lost. */
  mayBeProven = false;
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
   * @param previous the attempt directly before this one on the wire, if its end was left open
   * @param keepOpen whether to leave the end of this attempt to the next one or to `close`; only pipelined attempts
   * support this
   */
  abstract send(previous: Attempt | null, keepOpen: boolean): void;

  close(): void {}

  /** Whether the input has run, in its own transaction and under its own settings. */
  get hasRun(): boolean {
    return this.settingsApplied && this.statusAfterInput !== null;
  }

  get hasTransactionEnded(): boolean {
    return this.#hasTransactionEnded;
  }

  get objectsMissing(): boolean {
    return this.isResetMissing || isObjectMissing(this.finishError);
  }

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

  protected recordStart(clock: Buffer): void {
    this.#startUs = decodeMicroseconds(clock);
    this.start = timestampText(this.#startUs);
  }

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
