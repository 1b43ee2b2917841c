import { PgTaskError } from "../../shared/errors.js";
import type { SentRun } from "../../shared/ipc/messages.js";
import { PipelineDepth } from "./pipelineDepth.js";
import { lastValue, type ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import type { Execution, RunOutcome } from "../run/execution.js";
import { resetSql, stopSql } from "../run/sessionSql.js";
import { queryCanceled } from "../run/attemptOutcome.js";

/** How often what a stray cancel, of whomever, has hit is sent again. */
const mostResets = 100;

export interface PipelineEvents {
  /** A run came out; with a loss no other will. */
  out(execution: Execution, outcome: RunOutcome): void;
  /** It is not known how a run came out. */
  lost(execution: Execution): void;
  /** A run is to be sent again. */
  again(execution: Execution): void;
  /** A run is what the server is at now. */
  begun(execution: Execution): void;
  /** There may be room for one more. */
  changed(): void;
}

/**
 * The runs that are on one wire, in their order.
 *
 *     free ──send──▶ sending ──done──▶ free
 *                       │  done, but not clean
 *                       ▼
 *                    mending ──session as new──▶ free
 *
 * Several are on it at once only where the reset of each, a guard, keeps the next from a session that
 * is not as new. While a cancel is under way nothing is sent that it may hit; what it has hit although
 * it was not meant is done again. Mending: wait for the cancel, end the transaction, reset.
 */
export class Pipeline {
  readonly #wire: ProtocolConnection;
  readonly #events: PipelineEvents;
  readonly #onWire: Execution[] = [];
  /** Came back, and wait until the session has been mended. */
  #held: Execution[] = [];
  #mending: Promise<void> | null = null;
  /** For whom the last on the wire was left open. */
  #follower: Execution | null = null;
  #filling = false;
  readonly #depth = new PipelineDepth();
  #lastDoneAt = 0;
  #lost = false;
  /** Second key of the lock without which the server begins no run behind another; null to send none. */
  permit: number | null = null;

  constructor(wire: ProtocolConnection, events: PipelineEvents) {
    this.#wire = wire;
    this.#events = events;
  }

  get idle(): boolean {
    return this.#onWire.length === 0 && this.#held.length === 0 && this.#mending === null;
  }

  /** What has not come out yet, in its order. */
  get runs(): readonly Execution[] {
    return [...this.#held, ...this.#onWire];
  }

  /**
   * Has these runs come back, unless the server runs them.
   *
   * @returns what is on the wire, in its order.
   */
  recall(ids: readonly string[]): SentRun[] {
    for (const execution of this.runs) if (ids.includes(execution.id)) execution.recall();
    return this.#onWire.map(({ id, lock }) => ({ id, lock }));
  }

  takes(execution: Execution): boolean {
    if (this.#lost) return false;
    if (this.#onWire.length === 0) return this.idle;
    if (this.permit === null) return false;
    const most = this.#depth.runs;
    // Filled up when only half of them are left, so that several leave in one write.
    this.#filling = this.#onWire.length <= (this.#filling ? most - 1 : most / 2);
    return (
      this.#filling && this.#follower === execution && execution.chainable && !this.#endangered
    );
  }

  /** Whether what is sent might be hit by a cancel, or would be before what has to be mended. */
  get #endangered(): boolean {
    return this.#held.length > 0 || this.#onWire.some(({ endangering }) => endangering);
  }

  /** Sends what it takes; `next` is what will be sent behind it as soon as that is taken. */
  send(execution: Execution, next: Execution | null): void {
    if (this.#onWire.length === 0) this.#lastDoneAt = performance.now();
    const previous = this.#follower === execution ? (this.#onWire.at(-1) ?? null) : null;
    this.#onWire.push(execution);
    const followed = next?.chainable === true && execution.chainable && this.permit !== null;
    this.#follower = followed ? next : null;
    const place = { previous, followed, permit: this.permit ?? 0 };
    execution.send(place, {
      begun: () => this.#events.begun(execution),
      endangering: () => this.#expose(execution),
      done: () => this.#done(execution),
    });
  }

  /** When `next`, or none, is what comes now, the last must not wait for another. */
  settle(next: Execution | null): void {
    const follower = this.#follower;
    if (follower === null) return;
    const follows = next === follower && follower.chainable && this.permit !== null;
    if (follows && !this.#endangered) return;
    this.#follower = null;
    this.#onWire.at(-1)?.close();
  }

  /** The connection is gone. Resolves when everything that is known of its runs has been said. */
  async lose(reason: PgTaskError): Promise<void> {
    this.#lost = true;
    await this.#mending;
    for (const execution of [...this.#held.splice(0), ...this.#onWire.splice(0)]) {
      execution.end();
      if (execution.attempt?.over === true) this.#comeOut(execution, null, reason);
      else this.#events.lost(execution);
    }
  }

  #expose(execution: Execution): void {
    for (const other of this.#onWire) if (other !== execution) other.expose();
  }

  #done(execution: Execution): void {
    if (this.#lost) return;
    this.#onWire.shift();
    if (this.#onWire.length === 0) this.#follower = null;
    const now = performance.now();
    const sinceMs = now - this.#lastDoneAt;
    this.#depth.took(execution.attempt?.tookMs ?? sinceMs);
    this.#lastDoneAt = now;
    const verdict = execution.verdict();
    const clean = execution.attempt?.clean === true && !execution.endangering;
    const final = verdict === "ended" || verdict === "returned";
    if (clean && final && this.#held.length === 0) this.#comeOut(execution, null, null);
    else this.#held.push(execution);
    if (this.#held.length > 0 && this.#onWire.length === 0) this.#mending = this.#mend();
    this.#events.changed();
  }

  async #mend(): Promise<void> {
    const held = this.#held;
    let stop: string | null = null;
    let loss: PgTaskError | null = null;
    try {
      const settled = Promise.all(held.map((execution) => execution.settled()));
      await Promise.race([settled, this.#wire.ended]);
      const unclean = held.find(({ attempt }) => attempt?.clean === false);
      if (unclean !== undefined) stop = await this.#renewSession(unclean);
    } catch (error) {
      if (!(error instanceof PgTaskError)) throw error;
      loss = error;
    }
    this.#mending = null;
    this.#held = [];
    const again = held.filter((execution) => !this.#tryComeOut(execution, stop, loss));
    for (const execution of again.toReversed()) this.#events.again(execution);
    if (loss === null) this.#events.changed();
    else this.#wire.destroy(loss);
  }

  /** @returns the server's clock before the first reset that succeeded */
  async #renewSession({ needs }: Execution): Promise<string | null> {
    for (let attempt = 0; attempt < mostResets; attempt++) {
      // A ROLLBACK of no transaction puts a warning into the server's log.
      const rollback = this.#wire.status === "I" ? "" : "ROLLBACK; ";
      const end = this.#wire.ask(`${rollback}${stopSql(needs)}`);
      const resets = resetSql(needs).map((text) => this.#wire.ask(text));
      const answers = await Promise.all([end, ...resets]);
      const failure = answers.find(({ error }) => error !== null)?.error ?? null;
      if (failure === null) return lastValue(await end);
      if (this.#wire.status === "I" && failure.code !== queryCanceled) {
        throw lost(`the session could not be reset: ${failure.message} (SQLSTATE ${failure.code})`);
      }
    }
    throw lost("every reset of the session was cancelled");
  }

  /** False when it is to be tried again. */
  #tryComeOut(execution: Execution, stop: string | null, loss: PgTaskError | null): boolean {
    const verdict = execution.verdict();
    if (verdict !== "ended" && verdict !== "returned" && loss === null) {
      execution.renew(verdict);
      return false;
    }
    this.#comeOut(execution, stop, loss);
    return true;
  }

  #comeOut(execution: Execution, stop: string | null, loss: PgTaskError | null): void {
    execution.end();
    const verdict = execution.verdict();
    const result = execution.result(verdict === "ended" ? "ended" : "returned", stop);
    this.#events.out(execution, { result, loss });
  }
}

function lost(why: string): PgTaskError {
  return new PgTaskError("CONNECTION_LOST", `the session was given up: ${why}`);
}
