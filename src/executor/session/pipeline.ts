import { PgTaskError } from "../../shared/errors.js";
import type { SentRun } from "../../shared/ipc/executorMessages.js";
import { firstError, lastValue, type ProtocolConnection } from "../../shared/postgres/protocol/connection.js";
import { queryCanceled } from "../../shared/postgres/sqlStates.js";
import type { Execution, RunOutcome } from "../run/execution.js";
import { resetSql, stopSql } from "../run/runSettings.sql.js";
import {
  maxResets,
  durationGrowth,
  durationShrink,
  maxPipelineRuns,
  maxPipelineRunsWithoutSlow,
  minPipelineRuns,
  pipelineMs,
  rememberedRuns,
} from "../tuning.js";
import { slowRunMs } from "../../shared/tuning.js";

export interface PipelineEvents {
  /** After a result with a `loss`, no more results follow. */
  finished(execution: Execution, outcome: RunOutcome): void;
  lost(execution: Execution): void;
  retry(execution: Execution): void;
  started(execution: Execution): void;
  changed(): void;
}

/**
 * The runs that one session has sent but not finished, in order.
 *
 *     idle ──send──▶ sending ──attempt done, clean──▶ idle
 *                       │  attempt done, not clean
 *                       ▼
 *                    repairing ──session reset──▶ idle
 *
 * Several runs are on the wire only if a failed reset keeps the runs behind it from running. While a cancel is pending,
 * nothing is sent that it might hit by mistake. A run hit by another's cancel is retried. A repair waits for the pending
 * cancel, ends the transaction and resets the session.
 */
export class Pipeline {
  readonly #wire: ProtocolConnection;
  readonly #events: PipelineEvents;
  readonly #onWire: Execution[] = [];
  #awaitingRepair: Execution[] = [];
  #repair: Promise<void> | null = null;
  /** The run for which the end of the last one on the wire was left open. */
  #expectedNext: Execution | null = null;
  #isFilling = false;
  readonly #depth = new PipelineDepth();
  #lastDoneAt = 0;
  #isLost = false;
  /** The pipeline permit: second key of an advisory lock of the manager, without which no queued run may start. */
  permit: number | null = null;

  constructor(wire: ProtocolConnection, events: PipelineEvents) {
    this.#wire = wire;
    this.#events = events;
  }

  get isIdle(): boolean {
    return this.#onWire.length === 0 && this.#awaitingRepair.length === 0 && this.#repair === null;
  }

  get runs(): readonly Execution[] {
    return [...this.#awaitingRepair, ...this.#onWire];
  }

  /** Marks these runs to be released unless the server runs them already. Returns all runs on the wire. */
  recall(ids: readonly string[]): SentRun[] {
    for (const execution of this.runs) if (ids.includes(execution.id)) execution.isRecalled = true;
    return this.#onWire.map(({ id, lockKey }) => ({ id, lockKey }));
  }

  canSend(execution: Execution): boolean {
    if (this.#isLost) return false;
    if (this.#onWire.length === 0) return this.isIdle;
    if (this.permit === null) return false;
    const { maxRuns } = this.#depth;
    // The pipeline is refilled only when half of its runs are left, so that several runs are sent in one write.
    this.#isFilling = this.#onWire.length <= (this.#isFilling ? maxRuns - 1 : maxRuns / 2);
    return this.#isFilling && this.#expectedNext === execution && execution.isChainable && !this.#mustWait;
  }

  get #mustWait(): boolean {
    return this.#awaitingRepair.length > 0 || this.#onWire.some(({ cancellation }) => cancellation.isPending);
  }

  /** `canSend` must have returned true. `next` is to be sent directly behind this run as soon as possible. */
  send(execution: Execution, next: Execution | null): void {
    if (this.#onWire.length === 0) this.#lastDoneAt = performance.now();
    const previous = this.#expectedNext === execution ? (this.#onWire.at(-1) ?? null) : null;
    this.#onWire.push(execution);
    const isFollowed = next?.isChainable === true && execution.isChainable && this.permit !== null;
    this.#expectedNext = isFollowed ? next : null;
    const position = { previous, isFollowed, permit: this.permit ?? 0 };
    execution.send(position, {
      started: () => this.#events.started(execution),
      cancelRequested: () => {
        for (const other of this.#onWire) if (other !== execution) other.isExposed = true;
      },
      done: () => this.#attemptDone(execution),
    });
  }

  /** Ends the attempt whose end was left open, unless `next`, the first queued run, can still follow. */
  closeUnlessFollowedBy(next: Execution | null): void {
    const follower = this.#expectedNext;
    if (follower === null) return;
    const follows = next === follower && follower.isChainable && this.permit !== null;
    if (follows && !this.#mustWait) return;
    this.#expectedNext = null;
    this.#onWire.at(-1)?.close();
  }

  async connectionLost(reason: PgTaskError): Promise<void> {
    this.#isLost = true;
    await this.#repair;
    for (const execution of [...this.#awaitingRepair.splice(0), ...this.#onWire.splice(0)]) {
      execution.cancellation.end();
      if (execution.attempt?.hasTransactionEnded === true) this.#finish(execution, null, reason);
      else this.#events.lost(execution);
    }
  }

  #attemptDone(execution: Execution): void {
    if (this.#isLost) return;
    this.#onWire.shift();
    if (this.#onWire.length === 0) this.#expectedNext = null;
    const now = performance.now();
    const sinceMs = now - this.#lastDoneAt;
    this.#depth.addDuration(execution.attempt?.durationMs ?? sinceMs);
    this.#lastDoneAt = now;
    const outcome = execution.outcome();
    const clean = execution.attempt?.isClean === true && !execution.cancellation.isPending;
    const final = outcome === "ended" || outcome === "released";
    if (clean && final && this.#awaitingRepair.length === 0) this.#finish(execution, null, null);
    else this.#awaitingRepair.push(execution);
    if (this.#awaitingRepair.length > 0 && this.#onWire.length === 0) this.#repair = this.#repairSession();
    this.#events.changed();
  }

  async #repairSession(): Promise<void> {
    const awaiting = this.#awaitingRepair;
    let stop: string | null = null;
    let loss: PgTaskError | null = null;
    try {
      const settled = Promise.all(awaiting.map((execution) => execution.cancellation.whenSettled()));
      await Promise.race([settled, this.#wire.ended]);
      const unclean = awaiting.find(({ attempt }) => attempt?.isClean === false);
      if (unclean !== undefined) stop = await this.#resetSession(unclean);
    } catch (error) {
      if (!(error instanceof PgTaskError)) throw error;
      loss = error;
    }
    this.#repair = null;
    this.#awaitingRepair = [];
    const retried = awaiting.filter((execution) => !this.#finishUnlessRetried(execution, stop, loss));
    for (const execution of retried.toReversed()) this.#events.retry(execution);
    if (loss === null) this.#events.changed();
    else this.#wire.destroy(loss);
  }

  /** Returns the server's clock before the reset that succeeded. */
  async #resetSession({ run }: Execution): Promise<string | null> {
    for (let attempt = 0; attempt < maxResets; attempt++) {
      // A ROLLBACK outside a transaction would put a warning into the server's log.
      const rollback = this.#wire.status === "I" ? "" : "ROLLBACK; ";
      const end = this.#wire.query(`${rollback}${stopSql(run)}`);
      const resets = resetSql(run).map((text) => this.#wire.query(text));
      const answers = await Promise.all([end, ...resets]);
      const failure = firstError(answers);
      if (failure === null) return lastValue(await end);
      if (this.#wire.status === "I" && failure.code !== queryCanceled) {
        throw sessionClosed(`reset failed: ${failure.message} (SQLSTATE ${failure.code})`);
      }
    }
    throw sessionClosed("every reset was cancelled");
  }

  /** Returns false, without a result, if the run must be retried. */
  #finishUnlessRetried(execution: Execution, stop: string | null, loss: PgTaskError | null): boolean {
    const outcome = execution.outcome();
    if (outcome !== "ended" && outcome !== "released" && loss === null) {
      execution.prepareRetry(outcome);
      return false;
    }
    this.#finish(execution, stop, loss);
    return true;
  }

  #finish(execution: Execution, stop: string | null, loss: PgTaskError | null): void {
    execution.cancellation.end();
    const outcome = execution.outcome() === "ended" ? "ended" : "released";
    const result = execution.result(outcome, stop);
    this.#events.finished(execution, { result, loss });
  }
}

export function sessionClosed(why: string): PgTaskError {
  return new PgTaskError("CONNECTION_LOST", `session closed: ${why}`);
}

/** How many runs of a session may be on the wire at once, by how long recent runs took. */
export class PipelineDepth {
  #typicalMs = pipelineMs / minPipelineRuns;
  #runsSinceSlow = 0;

  get maxRuns(): number {
    const limit = this.#runsSinceSlow < rememberedRuns ? maxPipelineRuns : maxPipelineRunsWithoutSlow;
    return Math.min(limit, Math.floor(pipelineMs / this.#typicalMs));
  }

  addDuration(ms: number): void {
    this.#runsSinceSlow = ms > slowRunMs ? 0 : this.#runsSinceSlow + 1;
    const factor = ms > this.#typicalMs ? durationGrowth : durationShrink;
    // The lower bound is chosen so that a single longer run after many short ones does not change the depth, but the
    // depth still adapts quickly when durations change.
    const min = pipelineMs / maxPipelineRunsWithoutSlow / durationGrowth;
    const max = pipelineMs / minPipelineRuns;
    this.#typicalMs = Math.min(max, Math.max(min, this.#typicalMs * factor));
  }
}
