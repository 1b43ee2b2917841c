import { PgTaskError } from "../shared/errors.js";
import type { Run } from "../shared/messages.js";
import type { Output } from "./output.js";
import {
  finishEncodingSql,
  finishSql,
  resetSql,
  stopSql,
  type FinishPlace,
  type SettingsText,
} from "./sessionSql.js";
import type { Receive, Wire } from "./wire.js";
import type { ServerError, TransactionStatus } from "./wireMessages.js";

/** Where an attempt takes place. */
export interface AttemptPlace {
  readonly wire: Wire;
  readonly settings: SettingsText;
}

/** How an attempt is made. */
export interface AttemptForm {
  /** Everything is sent at once; only for inputs that are plain. */
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

const endTags = new Set(["COMMIT", "ROLLBACK", "PREPARE TRANSACTION"]);

/**
 * One time that a run is sent to the server, and what was heard of it. On the wire, each its own
 * message; a guard, in brackets, keeps the server from what is behind it when it fails:
 *
 *     whole:     [BEGIN] ─ settings ─ input ─ finish ─ COMMIT, stop ─ reset or [reset]
 *     stepwise:  settings ─ [BEGIN] ─ input ┊ finish ─ COMMIT, stop ─ reset
 *
 * Settings within the transaction are undone by an input that rolls it back, and keep it from
 * choosing its isolation: hence the other order for inputs that are not plain. An attempt is *whole*
 * only if nothing it can do makes it go otherwise than in this order.
 */
export class Attempt {
  readonly output: Output;
  readonly form: AttemptForm;
  /** The server's clock before the input; empty when it did not get there. */
  start = "";
  /** The server's clock after the transaction's end, null when it was not read. */
  stop: string | null = null;
  inputError: ServerError | null = null;
  /** Of entering the proof. */
  finishError: ServerError | null = null;
  /** Of the COMMIT. */
  endError: ServerError | null = null;
  /** What the input left: an open transaction, a failed one, or none; null when it was not run. */
  left: TransactionStatus | null = null;
  /** Whether the input itself ended a transaction, or went back to a savepoint. */
  endedOne = false;
  /** Whether its effect was committed while the task's row said that it runs. */
  committed = false;
  /** Whether its transaction has ended, so that it is known how it came out. */
  over = false;
  readonly #run: Run;
  readonly #place: AttemptPlace;
  readonly #events: AttemptEvents;
  #prepared = false;
  #proven = false;
  /** How many messages of the reset are unanswered; null before any was sent. */
  #resetting: number | null = null;
  #resetError: ServerError | null = null;
  #reset = false;

  constructor(
    run: Run,
    place: AttemptPlace,
    options: { output: Output; form: AttemptForm; events: AttemptEvents },
  ) {
    this.#run = run;
    this.#place = place;
    this.output = options.output;
    this.form = options.form;
    this.#events = options.events;
  }

  /** Whether the input was run, in the transaction and under the settings that are its own. */
  get ran(): boolean {
    return this.#prepared && this.left !== null;
  }

  /** Whether it left nothing to do in its session. */
  get clean(): boolean {
    return this.#reset && (this.stop !== null || !this.ran);
  }

  /** @param chained whether the reset guards what will be sent behind it; only for whole ones */
  send(chained: boolean): void {
    const { wire } = this.#place;
    const { whole, begin } = this.form;
    if (whole && begin) wire.guard("BEGIN", ignore);
    wire.send(this.#place.settings.sql(this.#run), this.#onSettings);
    if (!whole && begin) wire.guard("BEGIN", ignore);
    wire.send(this.#run.input, this.#onInput);
    if (!whole) return;
    this.#sendEnd(begin ? "COMMIT" : null);
    this.#sendReset(chained);
  }

  readonly #onSettings: Receive = (event) => {
    if (event.type === "dataRow") this.start = event.values.at(-1) ?? "";
    else if (event.type === "commandComplete") this.#prepared = true;
    else if (event.type === "ready" && this.#prepared) this.#events.begun();
    else if (event.type === "error" && !(this.form.whole && this.form.begin)) {
      // The input is on its way, and must not be run under another's settings.
      this.#place.wire.destroy(unprepared(event.error));
    }
  };

  readonly #onInput: Receive = (event) => {
    if (event.type === "ready") {
      this.left = event.status;
      // Were this said a turn later, a cancel could be asked for in between.
      if (event.status === "I") this.#end();
      if (!this.form.whole) this.#conclude(event.status);
    } else if (event.type === "skipped") {
      if (!this.form.whole) this.#events.done();
    } else if (this.#prepared) {
      if (event.type === "error") this.inputError ??= event.error;
      else if (event.type === "commandComplete" && endTags.has(event.tag)) this.endedOne = true;
      this.output.receive(event);
    }
  };

  /** Ends what the input left; a failed transaction, or one of a failed task, is rolled back. */
  #conclude(left: TransactionStatus): void {
    const failed = left === "E" || this.output.failure !== null;
    if (left === "I") this.#sendEnd(null);
    else this.#sendEnd(failed ? "ROLLBACK" : "COMMIT");
    if (!this.#events.endangered()) this.#sendReset(false);
  }

  #sendEnd(command: "COMMIT" | "ROLLBACK" | null): void {
    const { wire } = this.#place;
    const { proof } = this.form;
    if (proof !== null && command === "COMMIT") {
      const encoding = finishEncodingSql(proof);
      if (encoding !== null) wire.send(encoding, ignore);
      wire.send(finishSql(this.#run, proof), this.#onFinish);
    }
    const stop = stopSql(this.#run);
    wire.send(command === null ? stop : `${command}; ${stop}`, this.#onEnd);
  }

  readonly #onFinish: Receive = (event) => {
    if (event.type === "dataRow") this.#proven = event.values[0] === "t";
    else if (event.type === "error") this.finishError ??= event.error;
  };

  readonly #onEnd: Receive = (event) => {
    if (event.type === "commandComplete") {
      if (event.tag === "COMMIT") this.committed = this.#proven;
      if (event.tag === "COMMIT" || event.tag === "ROLLBACK") this.#end();
    } else if (event.type === "dataRow") this.stop = event.values.at(-1) ?? null;
    else if (event.type === "error") {
      if (!this.over) this.endError ??= event.error;
    } else if (event.type === "ready") {
      if (event.status === "I") this.#end();
      if (this.#resetting === null) this.#events.done();
    }
  };

  #end(): void {
    if (this.over) return;
    this.over = true;
    this.#events.over();
  }

  #sendReset(chained: boolean): void {
    const { wire } = this.#place;
    const texts = resetSql(this.#run);
    this.#resetting = texts.length;
    if (chained) wire.guard("DISCARD ALL", this.#onGuard);
    else for (const text of texts) wire.send(text, this.#onReset);
  }

  readonly #onReset: Receive = (event) => {
    if (event.type === "error") this.#resetError ??= event.error;
    else if (event.type === "ready") this.#resetAnswered(event.status === "I");
    else if (event.type === "skipped") this.#resetAnswered(false);
  };

  readonly #onGuard: Receive = (event) => {
    if (event.type === "commandComplete") this.#resetAnswered(true);
    else if (event.type === "skipped") this.#resetAnswered(false);
  };

  #resetAnswered(idle: boolean): void {
    this.#resetting = (this.#resetting ?? 0) - 1;
    if (this.#resetting > 0) return;
    this.#reset = idle && this.#resetError === null;
    this.#events.done();
  }
}

const ignore: Receive = () => {};

function unprepared(error: ServerError): PgTaskError {
  return new PgTaskError(
    "CONNECTION_LOST",
    `the session was given up: the settings of a run were refused: ${error.message} (SQLSTATE ${error.code})`,
  );
}
