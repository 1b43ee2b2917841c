import { PgTaskError } from "../../shared/errors.js";
import type { Run } from "../../shared/ipc/messages.js";
import { Attempt, type AttemptEvents, type AttemptForm } from "./attempt.js";
import type { OutputFormatter } from "../output/outputFormatter.js";
import { begin, type PipelinedMessages } from "./pipelinedMessages.js";
import {
  finishEncodingSql,
  finishSql,
  resetSql,
  stopSql,
  type SettingsText,
} from "./sessionSql.js";
import type { Receive, ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import type { ServerError, TransactionStatus } from "../../shared/postgres/protocol/messages.js";

/** Where a stepwise attempt takes place. */
export interface StepwiseAttemptOptions {
  readonly wire: ProtocolConnection;
  readonly settings: SettingsText;
  /** Null where the server lacks what they need. */
  readonly messages: PipelinedMessages | null;
}

const endTags = new Set(["COMMIT", "ROLLBACK", "PREPARE TRANSACTION"]);
/** After these an open transaction is the input's own: COMMIT may have been one AND CHAIN. */
const openingTags = new Set(["BEGIN", "START TRANSACTION", "COMMIT"]);

/**
 * An attempt whose end is sent when its input has been answered, for whatever input. Each is a message
 * of its own; in brackets are guards, which keep the server from everything behind what fails:
 *
 *     [BEGIN, clock, settings, COMMIT] ─ [BEGIN] ─ input ┊ finish ─ COMMIT, stop ─ reset
 *
 * Where the server has nothing of ours, the settings are one query.
 *
 * Settings within the transaction would be undone by an input that rolls it back, and keep it from
 * choosing its isolation.
 */
export class StepwiseAttempt extends Attempt {
  readonly #run: Run;
  readonly #place: StepwiseAttemptOptions;
  #proven = false;
  /** Whether an open transaction is one that the input has begun, so that its COMMIT shows. */
  #opened: boolean;
  /** How many messages of the reset are unanswered; null before any was sent. */
  #resetting: number | null = null;
  #resetError: ServerError | null = null;

  constructor(
    run: Run,
    place: StepwiseAttemptOptions,
    options: { output: OutputFormatter; form: AttemptForm; events: AttemptEvents },
  ) {
    super(options);
    this.#run = run;
    this.#place = place;
    this.#opened = !options.form.begin;
  }

  send(): void {
    const { wire, settings, messages } = this.#place;
    if (messages === null) wire.send(settings.sql(this.#run), this.#onSettings);
    else wire.guard(messages.opening(this.#run, false, null), this.onOpening);
    if (this.form.begin) wire.guard(begin, ignore);
    wire.send(this.#run.input, this.#onInput);
  }

  readonly #onSettings: Receive = (event) => {
    if (event.type === "dataRow") this.start = event.values.at(-1) ?? "";
    else if (event.type === "commandComplete") this.prepared = true;
    else if (event.type === "ready" && this.prepared) this.events.begun();
    else if (event.type === "error") {
      // The input is on its way, and must not be run under another's settings.
      this.#place.wire.destroy(unprepared(event.error));
    }
  };

  readonly #onInput: Receive = (event) => {
    if (event.type === "ready") {
      this.left = event.status;
      // Were this said a turn later, a cancel could be asked for in between.
      if (event.status === "I") this.end();
      this.#conclude(event.status);
    } else if (event.type === "skipped") this.events.done();
    else if (this.prepared) {
      if (event.type === "error") this.inputError ??= event.error;
      else if (event.type === "commandComplete") {
        if (endTags.has(event.tag)) this.endedOne = true;
        if (openingTags.has(event.tag)) this.#opened = true;
      }
      this.output.receive(event);
    }
  };

  /** Ends what the input left; a failed transaction, or one of a failed task, is rolled back. */
  #conclude(left: TransactionStatus): void {
    if (left === "T" && this.#opened) this.output.reserve("COMMIT");
    const failed = left === "E" || this.output.failure !== null;
    if (left === "I") this.#sendEnd(null);
    else this.#sendEnd(failed ? "ROLLBACK" : "COMMIT");
    if (!this.events.endangered()) this.#sendReset();
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
      if (event.tag === "COMMIT" && this.#opened) this.output.receive(event);
      if (event.tag === "COMMIT" || event.tag === "ROLLBACK") this.end();
    } else if (event.type === "dataRow") this.stop = event.values.at(-1) ?? null;
    else if (event.type === "error") {
      if (!this.over) this.endError ??= event.error;
    } else if (event.type === "ready") {
      if (event.status === "I") this.end();
      if (this.#resetting === null) this.events.done();
    }
  };

  #sendReset(): void {
    const texts = resetSql(this.#run);
    this.#resetting = texts.length;
    for (const text of texts) this.#place.wire.send(text, this.#onReset);
  }

  readonly #onReset: Receive = (event) => {
    if (event.type === "error") this.#resetError ??= event.error;
    else if (event.type === "ready") {
      this.#resetting = (this.#resetting ?? 0) - 1;
      if (this.#resetting > 0) return;
      this.reset = event.status === "I" && this.#resetError === null;
      this.events.done();
    }
  };
}

const ignore: Receive = () => {};

function unprepared(error: ServerError): PgTaskError {
  return new PgTaskError(
    "CONNECTION_LOST",
    `the session was given up: the settings of a run were refused: ${error.message} (SQLSTATE ${error.code})`,
  );
}
