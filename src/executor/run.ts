import { PgTaskError } from "../shared/errors.js";
import type { Run, RunResult } from "../shared/messages.js";
import { Cancellation, type CancelReason } from "./cancellation.js";
import { formatError, formatOwnError } from "./error.js";
import { startTimer } from "./longTimer.js";
import { Output } from "./output.js";
import { resetSql, settingsSql, stopSql, type TaskTable } from "./sessionSql.js";
import type { Answer, Receive, Wire } from "./wire.js";
import type { ServerError, TransactionStatus } from "./wireMessages.js";

/** Where a run takes place. */
export interface RunPlace extends TaskTable {
  readonly wire: Wire;
  readonly outputLimit: number;
  /** What the session is called while it runs this; by default as `applicationName` has it. */
  readonly name?: string;
  /** Asks for the session's backend to be cancelled; `cancelled` is the answer. */
  readonly cancel: () => void;
}

/** How a run came out, and whether its session can be used any longer. */
export interface RunOutcome {
  readonly result: RunResult;
  /** Why the session is of no use any more, null when it is. */
  readonly loss: PgTaskError | null;
}

const queryCanceled = "57014";

/** The server's own words, so that it does not matter which of the two clocks was first. */
export const timeoutMessage = "canceling statement due to statement timeout";

/** How often what a stray cancel, of whomever, has hit is sent again. */
const attempts = 10;

/**
 * One execution of one task on one session. On the wire, each its own message:
 *
 *     settings ─ input ─ end of an open transaction ─ stop ─ (hold) ─ reset
 *     └─ together ─┘     └─ only if there is one ─┘   └─── together ───┘
 *
 * Hold: while a cancel is under way nothing is sent that it may not hit.
 */
export class Execution {
  readonly #run: Run;
  readonly #place: RunPlace;
  readonly #output: Output;
  readonly #cancellation: Cancellation;
  #start = "";
  #error: ServerError | null = null;
  #stopTimer: () => void = () => {};

  constructor(run: Run, place: RunPlace) {
    this.#run = run;
    this.#place = place;
    this.#cancellation = new Cancellation(place.cancel);
    this.#output = new Output(run.format, place.outputLimit, () =>
      this.#cancellation.request("output"),
    );
  }

  get id(): string {
    return this.#run.id;
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
    this.#cancellation.answered();
  }

  /** Why it was first asked to end on our own account, null when it was not. */
  get cancelReason(): CancelReason | null {
    return this.#cancellation.reason;
  }

  /** What it has put out so far, and why no more of it could be taken, null when it could. */
  get output(): { readonly text: string | null; readonly failure: string | null } {
    return this.#output;
  }

  /** @throws PgTaskError CONNECTION_LOST when it is not known how the run came out */
  async execute(): Promise<RunOutcome> {
    try {
      const settings = this.#settings();
      const input = this.#input();
      await settings;
      await this.#endTransaction(await input);
    } finally {
      this.#ended();
    }
    return await this.#finish();
  }

  #settings(): Promise<TransactionStatus> {
    const { wire } = this.#place;
    return wire.query(settingsSql(this.#place, this.#run), (event) => {
      if (event.type === "dataRow") this.#start = event.values.at(-1) ?? "";
      // The input is on its way: it must not go on under the settings of another.
      else if (event.type === "error") wire.destroy(unprepared(event.error));
      else if (event.type === "ready") this.#begun();
    });
  }

  #begun(): void {
    this.#cancellation.begin();
    if (this.#run.timeoutMs === 0) return;
    this.#stopTimer = startTimer(this.#run.timeoutMs, () => this.#cancellation.request("timeout"));
  }

  #input(): Promise<TransactionStatus> {
    return this.#place.wire.query(this.#run.input, this.#receive);
  }

  readonly #receive: Receive = (event) => {
    if (event.type === "error") this.#error ??= event.error;
    this.#output.receive(event);
    // Nothing is left to cancel; were this said a turn later, a cancel could be asked for in between.
    if (event.type === "ready" && event.status === "I") this.#ended();
  };

  /** Commits what the input left open; a failed transaction, or one of a failed task, is rolled back. */
  async #endTransaction(left: TransactionStatus): Promise<void> {
    let status = left;
    for (let attempt = 0; status !== "I" && attempt < attempts; attempt++) {
      const failed = status === "E" || this.#output.failure !== null;
      status = await this.#place.wire.query(failed ? "ROLLBACK" : "COMMIT", (event) => {
        if (event.type === "error") this.#error ??= event.error;
        else if (event.type === "ready" && event.status === "I") this.#ended();
      });
    }
    if (status === "I") return;
    const loss = lost("its transaction could not be ended");
    this.#place.wire.destroy(loss);
    throw loss;
  }

  #ended(): void {
    this.#stopTimer();
    this.#cancellation.end();
  }

  /** The run is over and how it came out is known: what fails now costs the session, not the result. */
  async #finish(): Promise<RunOutcome> {
    const { wire } = this.#place;
    let stop: string | null = null;
    let loss: PgTaskError | null = null;
    try {
      const settled = this.#cancellation.settled();
      let reading = wire.ask(stopSql(this.#run));
      await Promise.race([settled, wire.ended]);
      for (let attempt = 0; ; attempt++) {
        const resets = resetSql(this.#run).map((text) => wire.ask(text));
        stop ??= lastValue(await reading);
        const failure = firstError(await Promise.all(resets));
        if (failure === null && stop !== null) break;
        if (failure !== null && failure.code !== queryCanceled) throw unreset(failure);
        if (attempt === attempts) throw lost("every reset of the session was cancelled");
        reading = wire.ask(stopSql(this.#run));
      }
    } catch (error) {
      if (!(error instanceof PgTaskError)) throw error;
      loss = error;
    }
    return { result: this.#result(stop), loss };
  }

  #result(stop: string | null): RunResult {
    const { session, id } = this.#run;
    const cancelled = this.#error?.code === queryCanceled;
    if (cancelled && this.#cancellation.reason === "abort") {
      return { outcome: "returned", session, id };
    }
    const error = this.#errorText();
    const output = this.#output.text ?? (error === null ? null : "");
    return {
      outcome: "ended",
      session,
      id,
      start: this.#start,
      stop,
      output,
      error,
      committed: false,
    };
  }

  #errorText(): string | null {
    const { input } = this.#run;
    const { failure } = this.#output;
    if (failure !== null) return formatOwnError(failure, input);
    if (this.#error === null) return null;
    const timedOut = this.#error.code === queryCanceled && this.#cancellation.reason === "timeout";
    return formatError(timedOut ? { ...this.#error, message: timeoutMessage } : this.#error, input);
  }
}

export function lastValue(answer: Answer): string | null {
  return answer.error === null ? (answer.rows[0]?.at(-1) ?? null) : null;
}

export function firstError(answers: readonly Answer[]): ServerError | null {
  return answers.find(({ error }) => error !== null)?.error ?? null;
}

function unprepared(error: ServerError): PgTaskError {
  return lost(`the settings of a run were refused: ${error.message} (SQLSTATE ${error.code})`);
}

function unreset(error: ServerError): PgTaskError {
  return lost(`the session could not be reset: ${error.message} (SQLSTATE ${error.code})`);
}

function lost(why: string): PgTaskError {
  return new PgTaskError("CONNECTION_LOST", `the session was given up: ${why}`);
}
