import type { OutputFormatter } from "../output/outputFormatter.js";
import type { FinishPlace } from "./sessionSql.js";
import type { Receive } from "../../shared/postgres/protocol/connection.js";
import {
  decodeMicroseconds,
  timestampText,
  type ServerError,
  type TransactionStatus,
} from "../../shared/postgres/protocol/messages.js";

/** How an attempt is made. */
export interface AttemptForm {
  /** Everything is sent at once. */
  readonly whole: boolean;
  /** BEGIN is sent before the input. */
  readonly begin: boolean;
  /** Whose proof is entered before the COMMIT, null for none. */
  readonly proof: FinishPlace | null;
}

export interface AttemptEvents {
  /** The settings stand: from now on it is the input that is run. */
  begun(): void;
  /** Its transaction has ended: a cancel could not change anything any more. */
  over(): void;
  /** Whether a cancel may be on its way, so that nothing may be sent that it must not hit. */
  endangered(): boolean;
  /** Nothing of it is on the wire any more. */
  done(): void;
}

/** One time that a run is sent to the server, and what was heard of it. */
export abstract class Attempt {
  readonly output: OutputFormatter;
  readonly form: AttemptForm;
  /** The server's clock before the input; empty when it did not get there. */
  start = "";
  /** The server's clock after the transaction's end, null when it was not read. */
  stop: string | null = null;
  /** From start to stop by the server's clock, null when those were not read as they came. */
  tookMs: number | null = null;
  inputError: ServerError | null = null;
  /** Of entering the proof. */
  finishError: ServerError | null = null;
  /** Of the COMMIT. */
  endError: ServerError | null = null;
  /** What the input left: an open transaction, a failed one, or none; null when it was not run. */
  left: TransactionStatus | null = null;
  /** Whether what makes the session as new was missing. */
  protected resetMissing = false;
  /** Whether the input itself ended a transaction, or went back to a savepoint. */
  endedOne = false;
  /** Whether its effect was committed while the task's row said that it runs. */
  committed = false;
  /** Whether its effect was committed without a proof, and without waiting for the disk. */
  unflushed = false;
  protected readonly events: AttemptEvents;
  /** Whether the settings stand, so that the input runs under its own. */
  protected prepared = false;
  /** Whether the session was made as new. */
  protected reset = false;
  #over = false;
  #startUs = NaN;

  constructor(options: { output: OutputFormatter; form: AttemptForm; events: AttemptEvents }) {
    this.output = options.output;
    this.form = options.form;
    this.events = options.events;
  }

  /**
   * @param previous the one right before it on the wire, when that has been left open.
   * @param open whether its end is left to another right behind it, or to `close`; only for whole ones.
   */
  abstract send(previous: Attempt | null, open: boolean): void;

  /** Ends one that was left open. */
  close(): void {}

  /** Whether the input was run, in the transaction and under the settings that are its own. */
  get ran(): boolean {
    return this.prepared && this.left !== null;
  }

  /** Whether its transaction has ended, so that it is known how it came out. */
  get over(): boolean {
    return this.#over;
  }

  /** Whether something was missing that pg-task made beside the table. */
  get lacking(): boolean {
    return this.resetMissing || isMissing(this.finishError);
  }

  /** Whether it left nothing to do in its session. */
  get clean(): boolean {
    return this.reset && (this.stop !== null || !this.ran);
  }

  protected readonly onOpening: Receive = (event) => {
    if (event.type === "value" && event.bytes !== null) this.startedAt(event.bytes);
    else if (event.type === "passed") {
      this.prepared = true;
      this.events.begun();
    }
  };

  /** @param clock the server's, as it came. */
  protected startedAt(clock: Buffer): void {
    this.#startUs = decodeMicroseconds(clock);
    this.start = timestampText(this.#startUs);
  }

  /** @param clock the server's, as it came. */
  protected stoppedAt(clock: Buffer): void {
    const stopUs = decodeMicroseconds(clock);
    this.stop = timestampText(stopUs);
    this.tookMs = (stopUs - this.#startUs) / 1000;
  }

  protected end(): void {
    if (this.#over) return;
    this.#over = true;
    this.events.over();
  }
}

/** Whether a table or a function of pg-task's own is not there. */
export function isMissing(error: ServerError | null): boolean {
  return error?.code === "42P01" || error?.code === "42883";
}
