import type { Run } from "../../shared/ipc/messages.js";
import { Attempt, isMissing, type AttemptEvents, type AttemptForm } from "./attempt.js";
import { isSingle } from "./classifyInput.js";
import type { OutputFormatter } from "../output/outputFormatter.js";
import { provenEnds, unprovenEnds, type PipelinedMessages } from "./pipelinedMessages.js";
import type { Receive, ProtocolConnection } from "../../shared/postgres/protocol/connection.js";

/** Where a whole attempt takes place. */
export interface PipelinedAttemptOptions {
  readonly wire: ProtocolConnection;
  readonly messages: PipelinedMessages;
  /** Second key of the lock that it takes when it begins, where others are sent before or behind it. */
  readonly lock: number;
  /** Second key of the lock without which it does not begin behind another. */
  readonly permit: number;
}

/**
 * An attempt that is sent in one write, for inputs of which it is sure how they leave the transaction.
 * In brackets are guards, which keep the server from everything behind what fails; finish and the
 * reset of a run right before are calls, whose failure is their transaction's:
 *
 *     [BEGIN, clock, settings] ─ [input] ─ finish ┬ [COMMIT] ─ [BEGIN, reset, COMMIT]
 *                                                 └ [COMMIT AND CHAIN] ┬ [reset, COMMIT]
 *                                                                      └ reset, settings ─ [input] ─ …
 *
 * Finish is the proof, where there is to be one. An input of several statements is no guard either: its
 * failed transaction lets nothing pass but a COMMIT, which ends it, and the next begins with a reset. The
 * next has been claimed before the transaction it runs in begins, so that no task sees a now() from
 * before its plan.
 *
 * When a single statement fails, the server does nothing of what is behind it, the next attempts
 * included: the session has to be mended.
 */
export class PipelinedAttempt extends Attempt {
  readonly #run: Run;
  readonly #place: PipelinedAttemptOptions;
  /** Whether finish says that it has entered the proof. */
  #entered = false;
  /** Whether its transaction is chained to the next, whoever that belongs to. */
  #chained = false;
  /** Whether its reset has been sent. */
  #closed = false;

  constructor(
    run: Run,
    place: PipelinedAttemptOptions,
    options: { output: OutputFormatter; form: AttemptForm; events: AttemptEvents },
  ) {
    super(options);
    this.#run = run;
    this.#place = place;
  }

  send(previous: Attempt | null, open: boolean): void {
    const { wire, messages } = this.#place;
    if (previous instanceof PipelinedAttempt) this.#follow(previous);
    else
      wire.guard(messages.opening(this.#run, true, open ? this.#place.lock : null), this.onOpening);
    const { input } = this.#run;
    if (isSingle(input)) wire.statement(input, this.#onInput);
    else wire.send(input, this.#onInput);
    if (this.#proves) wire.call(messages.proof(this.#run), this.#onProof);
    const ends = this.#proves ? provenEnds : unprovenEnds;
    this.#chained = open;
    wire.guard(open ? ends.chained : ends.last, this.#onEnd);
    if (!open) this.close();
  }

  override close(): void {
    const { wire, messages } = this.#place;
    this.#closed = true;
    wire.guard(this.#chained ? messages.chainedReset : messages.reset, this.#onReset);
    wire.sync(ignore);
  }

  get #proves(): boolean {
    return this.form.proof !== null;
  }

  #follow(previous: PipelinedAttempt): void {
    const { wire, messages, lock, permit } = this.#place;
    previous.#closed = true;
    const settings = messages.settings(this.#run);
    wire.call(messages.following(this.#run, lock, permit), (event) => {
      previous.#onReset(event);
      if (event.type === "value" || settings === null) this.onOpening(event);
    });
    if (settings !== null) wire.guard(settings, this.onOpening);
  }

  readonly #onInput: Receive = (event) => {
    if (event.type === "ready") this.left = event.status;
    else if (event.type === "passed") this.left = "T";
    else if (event.type === "error") this.inputError ??= event.error;
    else if (event.type !== "skipped") this.output.receive(event);
    else if (this.inputError !== null) this.left = event.status;
  };

  readonly #onProof: Receive = (event) => {
    if (event.type === "value") this.#entered = event.bytes?.[0] === 1;
    else if (event.type === "error" && this.inputError === null) this.finishError = event.error;
  };

  readonly #onEnd: Receive = (event) => {
    if (event.type === "passed") {
      // One whose input or proof has failed was rolled back.
      this.committed = this.#entered && this.finishError === null;
      this.unflushed = !this.#proves;
      this.end();
    } else if (event.type === "error") {
      if (this.inputError === null && this.finishError === null) this.endError = event.error;
    } else if (event.type === "skipped" && !this.#closed) this.events.done();
  };

  readonly #onReset: Receive = (event) => {
    if (event.type === "value" && event.bytes !== null) this.stoppedAt(event.bytes);
    else if (event.type === "passed") {
      this.reset = true;
      this.events.done();
    } else if (event.type === "error") this.resetMissing ||= isMissing(event.error);
    else if (event.type === "skipped") this.events.done();
  };
}

const ignore: Receive = () => {};
