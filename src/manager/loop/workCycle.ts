import { inOneWrite, type Client } from "../../shared/postgres/client.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import { noStarts } from "../sessions/sessionReserve.js";
import type { Look } from "../claim/claimChoice.js";
import { noClaim, type ClaimLimits, type ClaimOutcome } from "../claim/claimer.js";
import type { ManagerComponents } from "./components.js";
import { expireTasks } from "../groups/expireTasks.js";
import type { ScanResult } from "../groups/groupScanner.js";
import type { TurnTasks } from "../groups/turns.js";
import type { OwnedResult } from "../model/tasks.js";
import { Completer } from "../results/completer.js";
import type { ReleasedTask } from "../results/pendingResults.js";
import { updateLockTimeout } from "../sql/lockTimeout.js";
import { TaskReleaser } from "../results/taskReleaser.js";
import { UnwantedRunCanceller } from "../sessions/unwantedRunCanceller.js";

type Seen = ScanResult & { readonly started: number };

const seenNothing: Seen = { started: 0, lateGroups: [], again: false };

/** A cycle that takes longer than `slowCycleMs` is logged, but only one such cycle in `warnEveryMs`. Both are in ms. */
const slowCycleMs = 5_000;
const warnEveryMs = 60_000;

export interface CycleRequest {
  /** Whether rows of claimed tasks may have been deleted or set to another state. */
  readonly checkRuns: boolean;
  readonly notified: boolean;
  /** Whether the table may change without a notification. */
  readonly polls: boolean;
}

export interface CycleOutcome extends Pick<ClaimOutcome, "claimed" | "more"> {
  readonly expired: number;
  /** How many results of ended runs were to be written. */
  readonly ended: number;
  readonly again: boolean;
  /** Time until the next task becomes due, in ms. Null if no task is planned. */
  readonly nearestMs: number | null;
  /** Time until the next group that waits for its gap can start a task, in ms. Infinity if none waits. */
  readonly gapMs: number;
  /** Whether part of the cycle was deferred by a transient error, such as a lock on the table. */
  readonly deferred: boolean;
}

/**
 * One cycle of the manager. In one round trip it writes results, marks tasks as due and scans groups. Then it claims
 * due tasks, or does so in the same round trip (`ClaimChoice`).
 */
export class WorkCycle {
  readonly #components: ManagerComponents;
  readonly #completer: Completer;
  readonly #releaser: TaskReleaser;
  readonly #canceller: UnwantedRunCanceller;
  /** Whether results that were taken out of the pending results are still being written. */
  #isWriting = false;
  #warnedAt = -Infinity;

  constructor(components: ManagerComponents) {
    this.#components = components;
    this.#completer = new Completer(components);
    this.#releaser = new TaskReleaser(components);
    this.#canceller = new UnwantedRunCanceller(components);
  }

  /** Whether all results are in their rows, except results that the server rejects. */
  get allWritten(): boolean {
    const { size, rejectedCount } = this.#components.pendingResults;
    return !this.#isWriting && size === rejectedCount;
  }

  /** Whether something waits for locked rows, or a large result is being written. */
  get isWaiting(): boolean {
    const { claimer, deferredPauses, pendingResults } = this.#components;
    return (
      claimer.locked.size > 0 ||
      pendingResults.deferredCount > 0 ||
      pendingResults.largeCount > 0 ||
      deferredPauses.locked > 0 ||
      this.#components.runningRows.deferredCount > 0
    );
  }

  /** Time until a rejected row has to be tried again, in ms. Infinity if there is none. */
  get retryMs(): number {
    const { claimer, deferredPauses, pendingResults } = this.#components;
    return Math.min(pendingResults.rejectedRetryMs, claimer.rejected.rows.nextRetryMs, deferredPauses.retryMs);
  }

  get recheckMs(): number {
    return this.#components.claimer.locked.recheckMs;
  }

  /** Retries what has waited for locked rows or for the end of a retry delay. */
  async retryLocked(client: Client): Promise<void> {
    const { claimer, deferredPauses, groupScanner, pendingResults } = this.#components;
    pendingResults.requeueDeferred();
    this.#components.runningRows.requeueDeferred();
    await this.#orDefer(undefined, async () => {
      if (deferredPauses.size > 0) {
        await deferredPauses.retry(client);
        groupScanner.markChanged();
      }
      if (claimer.rejected.rows.nextRetryMs === 0) {
        await claimer.rejected.retry(client);
        groupScanner.markChanged();
      }
    });
    await this.recheckLocked(client);
  }

  /** Offers the due tasks again whose rows were locked and that claims need not skip any longer. */
  async recheckLocked(client: Client): Promise<void> {
    const { claimer, groupScanner } = this.#components;
    await this.#orDefer(undefined, async () => {
      for (const task of await claimer.locked.recheck(client)) groupScanner.addDue(task);
    });
  }

  /** @throws errors of the server that are not transient */
  async run(client: Client, request: CycleRequest): Promise<CycleOutcome> {
    const { claimer, dependencies, groups, groupScanner, log, pendingResults, sessions, turns } = this.#components;
    const since = performance.now();
    const limits = this.#claimLimits();
    if (request.notified) claimer.locked.notified();
    if (request.checkRuns) dependencies.tableChanged();
    groups.endGaps();
    await updateLockTimeout(client);
    await this.#prepareWrites(client);
    const { results, released } = this.#takeWrites(client);
    const { kept } = this.#components.reserve;
    const { sleepMs } = this.#components.knownSettings;
    const start = { results, released, mayHaveChanged: request.checkRuns || request.polls, kept, sleepMs };
    const { look, isEarly, isSaturated } = claimer.choice.choose(start, claimer.needsFull, turns.hasAny);
    const endedKeys = groups.runningKeys.takeEnded();
    const outcomes = await inOneWrite(client, () =>
      Promise.allSettled([
        // Sent before the results, so that a pause after a run applies to every task that is due by now.
        groupScanner.markDue(client),
        ...this.#write(client, results, released),
        // Sent after the results, because writing a result can make its task due again (if the task was set to `PLAN`
        // while it ran).
        this.#look(client, look, limits, { isSaturated, watch: request.checkRuns }),
        this.#canceller.check(client, request),
        sessions.recalls.grantPermits(client),
        isEarly ? this.#claim(client, limits) : null,
        groupScanner.offerWaiting(client, endedKeys),
      ]),
    );
    this.#isWriting = false;
    const problems = outcomes.flatMap((each) => (each.status === "rejected" ? [each.reason as unknown] : []));
    for (const problem of problems) this.#deferOrThrow(problem);
    const [marked, , , , , looked, , , early, offered] = outcomes;
    const { started, lateGroups, again: lookAgain } = valueOf(looked, seenNothing);
    const claim = await this.#claimInTurn(client, limits, valueOf(early, null));
    claimer.choice.endCycle(look);
    sessions.markUnused();
    const { expired, again: expireAgain } = await this.#expire(client, [...lateGroups, ...claim.lateGroups]);
    this.#warnIfSlow(since);
    if (expired > 0) dependencies.tableChanged();
    if (results.length > 0) dependencies.resultsWritten();
    if (expired > 0) log.info({ tasks: expired }, "late tasks expired");
    return {
      claimed: started + claim.claimed,
      more: claim.more,
      expired,
      ended: results.length,
      again:
        expireAgain ||
        // Behind a locked task there may be another task of its group that can start.
        claim.locked > 0 ||
        claim.again ||
        !pendingResults.isEmpty ||
        this.#hasUpdates ||
        lookAgain ||
        valueOf(marked, false) ||
        // An early claim was sent before these tasks were known.
        valueOf(offered, false),
      nearestMs: groupScanner.nextDueMs,
      gapMs: groups.gaps.nextMs,
      deferred: problems.length > 0,
    };
  }

  /** Writes results and cancels unwanted runs, for a manager that claims no tasks. Returns whether there is more to write. */
  async writeOnly(client: Client): Promise<boolean> {
    const { pendingResults, sessions } = this.#components;
    await this.#prepareWrites(client);
    const { results, released } = this.#takeWrites(client);
    const outcomes = await inOneWrite(client, () =>
      Promise.allSettled([
        ...this.#write(client, results, released),
        this.#canceller.check(client, { checkRuns: true, notified: true }),
        sessions.recalls.grantPermits(client),
      ]),
    );
    this.#isWriting = false;
    for (const each of outcomes) if (each.status === "rejected") this.#deferOrThrow(each.reason);
    return !pendingResults.isEmpty || this.#hasUpdates;
  }

  /** Does what needs an answer from the server. After that, all statements can be sent together in a fixed order. */
  async #prepareWrites(client: Client): Promise<void> {
    const { recalls } = this.#components.sessions;
    await this.#completer.prepare(client);
    // Recalled tasks are released in this same cycle.
    if (recalls.needsServer) await this.#orDefer(undefined, () => recalls.process(client));
  }

  /**
   * Takes what is to be written from the pending results. Must stay synchronous: `isWriting` must be set in the same
   * tick in which results leave `pendingResults`. Otherwise, a drain that ends in between would assume that these
   * results are written, and close their sessions.
   */
  #takeWrites(client: Client): { readonly results: OwnedResult[]; readonly released: ReleasedTask[] } {
    const { pendingResults } = this.#components;
    this.#completer.startLarge(client);
    this.#isWriting = true;
    return { results: pendingResults.takeResults(), released: pendingResults.takeReleased() };
  }

  #write(client: Client, results: readonly OwnedResult[], released: readonly ReleasedTask[]) {
    return [
      // Sent before the results, because a task that has ended no longer has a backend.
      this.#components.runningRows.writeRemotePids(client),
      this.#components.runningRows.writeStarts(client),
      this.#completer.write(client, results),
      this.#releaser.release(client, released),
    ] as const;
  }

  /** After a small claim that could not take all tasks, the groups are scanned as well. */
  async #look(
    client: Client,
    look: Look,
    { starts }: ClaimLimits,
    scan: { readonly isSaturated: boolean; readonly watch: boolean },
  ): Promise<Seen> {
    const { claimer, groupScanner } = this.#components;
    if (look === "nothing") return seenNothing;
    let started = 0;
    if (look === "small claim") {
      groupScanner.beginSmallClaim();
      const small = await claimer.claimSmall(client, starts);
      groupScanner.endSmallClaim(small);
      started = small?.claimed.length ?? 0;
      if (small?.isComplete === true) return { ...seenNothing, started };
      claimer.choice.foundMany();
    }
    const except = claimer.skippedIds;
    const [scanned] = await inOneWrite(client, () =>
      Promise.all([
        groupScanner.scan(client, { ...scan, except }),
        groupScanner.updateNextPlan(client, scan.isSaturated),
      ]),
    );
    return { ...scanned, started };
  }

  /** @param early the outcome of a claim that was sent together with the results, which then is the only one */
  async #claimInTurn(client: Client, limits: ClaimLimits, early: ClaimOutcome | null): Promise<ClaimOutcome> {
    const { turns } = this.#components;
    const hasEnded = await this.#orDefer(false, () => turns.step(client, () => this.#turnTasks()));
    const claim = early ?? (await this.#claim(client, limits));
    const mayFollow = turns.endCycle(claim, hasEnded);
    return hasEnded || mayFollow ? { ...claim, again: true } : claim;
  }

  #turnTasks(): TurnTasks {
    const { claimer, orphans, pendingResults, sessions } = this.#components;
    const { taskIds } = sessions;
    return {
      running: [...taskIds, ...orphans.runningIds],
      claimed: [...taskIds, ...orphans.ids, ...pendingResults.ids],
      rejected: claimer.rejected.rows.ids,
      skipped: claimer.skippedIds,
    };
  }

  get #hasUpdates(): boolean {
    return !this.#components.runningRows.isEmpty || this.#components.sessions.recalls.needsServer;
  }

  #claimLimits(): ClaimLimits {
    const { groups, isDraining, knownSettings, poolScaler, reserve } = this.#components;
    const { fetch, limit, run } = knownSettings;
    if (isDraining) return { starts: noStarts, lookAhead: 0, fetch, limit };
    // More tasks than the limit may be running, because tasks of earlier managers count as well.
    const allowed = Math.max(0, run - groups.totalRunning);
    return { starts: reserve.starts, lookAhead: Math.min(allowed, poolScaler.lookAhead), fetch, limit };
  }

  async #claim(client: Client, limits: ClaimLimits): Promise<ClaimOutcome> {
    const { claimer, lanes } = this.#components;
    return await this.#orDefer(noClaim, () =>
      lanes.isUsed
        ? lanes.claimEach(client, () => claimer.claim(client, this.#claimLimits()))
        : claimer.claim(client, limits),
    );
  }

  async #expire(client: Client, hashes: readonly number[]): Promise<Pick<CycleOutcome, "expired" | "again">> {
    const { claimer, groupScanner, knownSettings, owed, table } = this.#components;
    return await this.#orDefer({ expired: 0, again: false }, async () => {
      const { rejected, skippedIds: except } = claimer;
      const known = { except, rejectedRows: rejected.rows, owed };
      const { expired, locked, again } = await expireTasks(client, table, hashes, knownSettings.batch, known);
      if (locked.length > 0) claimer.locked.add(locked);
      if (expired > 0) groupScanner.markPlanned();
      return { expired, again };
    });
  }

  /** A slow cycle delays all tasks of the table. A user's trigger may be the cause. */
  #warnIfSlow(since: number): void {
    const now = performance.now();
    if (now - since < slowCycleMs || now - this.#warnedAt < warnEveryMs) return;
    this.#warnedAt = now;
    this.#components.log.warn({ ms: Math.round(now - since) }, "slow cycle");
  }

  /** Returns the result of the step, or `otherwise` after a transient error, which is left to the next cycle. */
  async #orDefer<Value>(otherwise: Value, step: () => Promise<Value>): Promise<Value> {
    try {
      return await step();
    } catch (error) {
      this.#deferOrThrow(error);
      return otherwise;
    }
  }

  #deferOrThrow(problem: unknown): void {
    if (!isTransient(problem)) throw problem;
    // What the step would have found or planned is not known.
    this.#components.groupScanner.markPlanned();
    this.#components.log.debug({ err: problem }, "cycle deferred");
  }
}

function valueOf<Value>(outcome: PromiseSettledResult<Value>, otherwise: Value): Value {
  return outcome.status === "fulfilled" ? outcome.value : otherwise;
}
