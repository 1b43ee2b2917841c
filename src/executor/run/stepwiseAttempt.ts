import { PgTaskError } from "../../shared/errors.js";
import { Attempt, ignore } from "./attempt.js";
import { begin, type PipelinedMessages } from "./pipelinedMessages.js";
import { resetSql, stopSql, type SettingsSql } from "./runSettings.sql.js";
import type { Receive, ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import type { ServerError, TransactionStatus } from "../../shared/postgres/protocol/decode.js";

export interface StepwiseAttemptContext {
  readonly wire: ProtocolConnection;
  readonly settings: SettingsSql;
  readonly messages: PipelinedMessages | null;
}

const endTags = new Set(["COMMIT", "ROLLBACK", "PREPARE TRANSACTION"]);
/**
 * If a statement of the input has one of these tags and a transaction is open afterwards, the input has begun it: COMMIT
 * may have been COMMIT AND CHAIN.
 */
const openingTags = new Set(["BEGIN", "START TRANSACTION", "COMMIT"]);

/**
 * An attempt whose end is sent only after its input has been answered. It works for any input. Each step is a message of
 * its own. Brackets mark guards: when one fails, the server skips everything behind it. A server without pg-task's
 * functions gets the settings in one query.
 *
 *     [BEGIN, clock, settings, COMMIT] ─ [BEGIN] ─ input ┊ finish ─ COMMIT, stop ─ reset
 *
 * The settings come before BEGIN, because an input that rolls back would undo them, and they would keep the input from
 * choosing its isolation level.
 */
export class StepwiseAttempt extends Attempt<StepwiseAttemptContext> {
  /** Whether the input has begun the open transaction, so that its COMMIT is part of the output. */
  #hasInputBegun = !this.form.sendsBegin;
  #pendingResets: number | null = null;
  #resetError: ServerError | null = null;

  send(): void {
    const { wire, settings, messages } = this.context;
    if (messages === null) wire.send(settings.sql(this.run), this.#onSettings);
    else wire.guard(messages.opening(this.run, false, null), this.onOpening);
    if (this.form.sendsBegin) wire.guard(begin, ignore);
    const { parameters } = this;
    if (parameters === null) wire.send(this.run.input, this.#onInput);
    else wire.sendStatement(this.run.input, this.#onInput, parameters);
  }

  readonly #onSettings: Receive = (event) => {
    if (event.type === "dataRow") this.start = event.values.at(-1) ?? "";
    else if (event.type === "commandComplete") this.settingsApplied = true;
    else if (event.type === "ready" && this.settingsApplied) this.started();
    else if (event.type === "error") {
      // The input has already been sent, but must not run under the settings of another run.
      const { message, code } = event.error;
      const why = `session closed, the settings of a run were refused: ${message} (SQLSTATE ${code})`;
      this.context.wire.destroy(new PgTaskError("CONNECTION_LOST", why));
    }
  };

  readonly #onInput: Receive = (event) => {
    if (event.type === "ready") {
      this.statusAfterInput = event.status;
      // Done at once, before a cancel can be requested.
      if (event.status === "I") this.markTransactionEnded();
      this.#endTransaction(event.status);
    } else if (event.type === "skipped") this.done();
    else if (this.settingsApplied) {
      if (event.type === "error") this.inputError ??= event.error;
      else if (event.type === "commandComplete") {
        if (endTags.has(event.tag)) this.inputEndedTransaction = true;
        if (openingTags.has(event.tag)) this.#hasInputBegun = true;
      }
      this.output.receive(event);
    }
  };

  /** Rolls the open transaction back if it has failed, or if the output exceeds the limit or is not text. */
  #endTransaction(status: TransactionStatus): void {
    if (status === "T" && this.#hasInputBegun) this.output.reserve("COMMIT");
    const failed = status === "E" || this.output.failure !== null;
    if (status === "I") this.#sendEnd(null);
    else this.#sendEnd(failed ? "ROLLBACK" : "COMMIT");
    if (!this.cancellation.isPending) this.#sendReset();
  }

  #sendEnd(command: "COMMIT" | "ROLLBACK" | null): void {
    const { wire } = this.context;
    const { proof } = this.form;
    if (proof !== null && command === "COMMIT") {
      if (proof.encodingSql !== null) wire.send(proof.encodingSql, ignore);
      wire.send(proof.sql(this.run), this.#onFinish);
      this.mayBeProven = true;
    }
    const stop = stopSql(this.run);
    wire.send(command === null ? stop : `${command}; ${stop}`, this.#onEnd);
  }

  readonly #onFinish: Receive = (event) => {
    if (event.type === "dataRow") this.isProofWritten = event.values[0] === "t";
    else if (event.type === "error") this.finishError ??= event.error;
  };

  readonly #onEnd: Receive = (event) => {
    if (event.type === "commandComplete") {
      if (event.tag === "COMMIT") this.committed = this.isProofWritten;
      if (event.tag === "COMMIT" && this.#hasInputBegun) this.output.receive(event);
      if (event.tag === "COMMIT" || event.tag === "ROLLBACK") this.markTransactionEnded();
    } else if (event.type === "dataRow") this.stop = event.values.at(-1) ?? null;
    else if (event.type === "error") {
      if (!this.hasTransactionEnded) this.commitError ??= event.error;
    } else if (event.type === "ready") {
      if (event.status === "I") this.markTransactionEnded();
      if (this.#pendingResets === null) this.done();
    }
  };

  #sendReset(): void {
    const texts = resetSql(this.run);
    this.#pendingResets = texts.length;
    for (const text of texts) this.context.wire.send(text, this.#onReset);
  }

  readonly #onReset: Receive = (event) => {
    if (event.type === "error") this.#resetError ??= event.error;
    else if (event.type === "ready") {
      this.#pendingResets = (this.#pendingResets ?? 0) - 1;
      if (this.#pendingResets > 0) return;
      this.wasReset = event.status === "I" && this.#resetError === null;
      this.done();
    }
  };
}
