import { Attempt, ignore, isObjectMissing } from "./attempt.js";
import { isSingleStatement } from "./classifyInput.js";
import { commitWithProof, commitWithoutProof, type PipelinedMessages } from "./pipelinedMessages.js";
import type { Receive, ProtocolConnection } from "../../shared/postgres/protocol/connection.js";

export interface PipelinedAttemptContext {
  readonly wire: ProtocolConnection;
  readonly messages: PipelinedMessages;
  readonly lockKey: number;
  readonly permit: number;
}

/**
 * An attempt that is sent in one write. Brackets mark guards: when one fails, the server skips everything behind it.
 * Finish and the reset after the previous run are function calls: when one fails, its transaction fails.
 *
 *     [BEGIN, clock, settings] ─ [input] ─ finish ┬ [COMMIT] ─ [BEGIN, reset, COMMIT]
 *                                                 └ [COMMIT AND CHAIN] ┬ [reset, COMMIT]
 *                                                                      └ reset, settings ─ [input] ─ …
 *
 * Finish is left out if there is no proof to write. An input of several statements is no guard: after an error in it, the
 * COMMIT rolls back, and the next transaction begins with a reset. When an input of one statement fails, the server skips
 * everything behind it, the next attempts too, and the session must be repaired. The transaction of a chained run begins
 * after the run was claimed, so no task sees a now() earlier than its planned time.
 */
export class PipelinedAttempt extends Attempt<PipelinedAttemptContext> {
  #isChained = false;
  #isResetSent = false;

  send(previous: Attempt | null, keepOpen: boolean): void {
    const { wire, messages } = this.context;
    if (previous instanceof PipelinedAttempt) this.#sendChainedOpening(previous);
    else wire.guard(messages.opening(this.run, true, keepOpen ? this.context.lockKey : null), this.onOpening);
    const { input } = this.run;
    const { parameters } = this;
    if (parameters !== null || isSingleStatement(input)) wire.statement(input, this.#onInput, parameters ?? undefined);
    else wire.send(input, this.#onInput);
    if (this.#hasProof) wire.call(messages.finishCall(this.run), this.#onProof);
    const commit = this.#hasProof ? commitWithProof : commitWithoutProof;
    this.#isChained = keepOpen;
    wire.guard(keepOpen ? commit.chained : commit.last, this.#onEnd);
    if (!keepOpen) this.close();
  }

  override close(): void {
    const { wire, messages } = this.context;
    this.#isResetSent = true;
    wire.guard(this.#isChained ? messages.chainedReset : messages.reset, this.#onReset);
    wire.sync(ignore);
  }

  get #hasProof(): boolean {
    return this.form.proof !== null;
  }

  #sendChainedOpening(previous: PipelinedAttempt): void {
    const { wire, messages, lockKey: lock, permit } = this.context;
    previous.#isResetSent = true;
    const settings = messages.settings(this.run);
    wire.call(messages.chainedOpening(this.run, lock, permit), (event) => {
      previous.#onReset(event);
      if (event.type === "value" || settings === null) this.onOpening(event);
    });
    if (settings !== null) wire.guard(settings, this.onOpening);
  }

  readonly #onInput: Receive = (event) => {
    if (event.type === "ready") this.statusAfterInput = event.status;
    else if (event.type === "passed") this.statusAfterInput = "T";
    else if (event.type === "error") this.inputError ??= event.error;
    else if (event.type !== "skipped") this.output.receive(event);
    else if (this.inputError !== null) this.statusAfterInput = event.status;
  };

  readonly #onProof: Receive = (event) => {
    if (event.type === "value") this.isProofWritten = event.bytes?.[0] === 1;
    else if (event.type === "error" && this.inputError === null) this.finishError = event.error;
  };

  readonly #onEnd: Receive = (event) => {
    if (event.type === "passed") {
      // A COMMIT after a failed input or a failed finish acts as a rollback.
      this.committed = this.isProofWritten && this.finishError === null;
      this.unflushed = !this.#hasProof;
      this.markTransactionEnded();
    } else if (event.type === "error") {
      if (this.inputError === null && this.finishError === null) this.commitError = event.error;
    } else if (event.type === "skipped" && !this.#isResetSent) this.done();
  };

  readonly #onReset: Receive = (event) => {
    if (event.type === "value" && event.bytes !== null) this.recordStop(event.bytes);
    else if (event.type === "passed") {
      this.wasReset = true;
      this.done();
    } else if (event.type === "error") this.isResetMissing ||= isObjectMissing(event.error);
    else if (event.type === "skipped") this.done();
  };
}
