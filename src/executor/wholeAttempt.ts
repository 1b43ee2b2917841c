import type { Run } from "../shared/messages.js";
import { Attempt, type AttemptEvents, type AttemptForm } from "./attempt.js";
import { isSingle } from "./inputWords.js";
import type { Output } from "./output.js";
import type { SessionMessages } from "./sessionMessages.js";
import type { Receive, Wire } from "./wire.js";

/** Where a whole attempt takes place. */
export interface WholePlace {
  readonly wire: Wire;
  readonly messages: SessionMessages;
}

/**
 * An attempt that is sent in one write, for inputs of which it is sure how they leave the transaction.
 * In brackets are guards, which keep the server from everything behind what fails:
 *
 *     [BEGIN, clock, settings] ─ [input] ─ [finish, COMMIT] ┬ [reset]
 *                                                           └ [BEGIN, reset, settings] ─ [input] ─ …
 *
 * Finish is the proof, where there is to be one.
 * Its reset is one with the opening of the attempt right behind it. An input of several statements is no
 * guard, but its failed transaction lets no guard pass.
 *
 * So when the input fails, the server does nothing of what is behind it, the next attempts included:
 * the session has to be mended.
 */
export class WholeAttempt extends Attempt {
  readonly #run: Run;
  readonly #place: WholePlace;
  #finished = false;
  #proven = false;
  /** Whether its reset has been sent. */
  #closed = false;

  constructor(
    run: Run,
    place: WholePlace,
    options: { output: Output; form: AttemptForm; events: AttemptEvents },
  ) {
    super(options);
    this.#run = run;
    this.#place = place;
  }

  send(previous: Attempt | null, open: boolean): void {
    const { wire, messages } = this.#place;
    if (previous instanceof WholeAttempt) this.#follow(previous);
    else wire.guard(messages.opening(this.#run, true), this.onOpening);
    const { input } = this.#run;
    if (isSingle(input)) wire.statement(input, this.#onInput);
    else wire.send(input, this.#onInput);
    if (this.#proves) wire.guard(messages.proof(this.#run), this.#onEnd);
    else wire.guard(messages.end, this.#onEnd);
    if (!open) this.close();
  }

  override close(): void {
    const { wire, messages } = this.#place;
    this.#closed = true;
    wire.guard(messages.reset, this.#onReset);
    wire.sync(ignore);
  }

  get #proves(): boolean {
    return this.form.proof !== null;
  }

  #follow(previous: WholeAttempt): void {
    const { wire, messages } = this.#place;
    previous.#closed = true;
    wire.guard(messages.following(this.#run), (event) => {
      previous.#onReset(event);
      this.onOpening(event);
    });
  }

  readonly #onInput: Receive = (event) => {
    if (event.type === "ready") this.left = event.status;
    else if (event.type === "passed") this.left = "T";
    else if (event.type === "error") this.inputError ??= event.error;
    else if (event.type !== "skipped") this.output.receive(event);
    else if (this.inputError !== null) this.left = event.status;
  };

  readonly #onEnd: Receive = (event) => {
    if (event.type === "value") {
      this.#finished = true;
      this.#proven = event.bytes?.[0] === 1;
    } else if (event.type === "passed") {
      this.committed = this.#proven;
      this.unflushed = !this.#proves;
      this.end();
    } else if (event.type === "error" && this.inputError === null) {
      if (this.#finished || !this.#proves) this.endError = event.error;
      else this.finishError = event.error;
    } else if (event.type === "skipped" && !this.#closed) this.events.done();
  };

  readonly #onReset: Receive = (event) => {
    if (event.type === "value" && event.bytes !== null) this.stoppedAt(event.bytes);
    else if (event.type === "passed") {
      this.reset = true;
      this.events.done();
    } else if (event.type === "skipped") this.events.done();
  };
}

const ignore: Receive = () => {};
