import type { DatabaseError } from "pg";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import type { Dependencies } from "../dependencies/dependencies.js";
import { toReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { LargeResultWriter } from "./largeResultWriter.js";
import type { GroupScanner } from "../groups/groupScanner.js";
import type { PendingResults } from "./pendingResults.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { DeferredPauses } from "../groups/deferredPauses.js";
import { tryInOrder, RejectedRows, changeRows } from "../sql/rejectedRows.js";
import { readColumnSet, type ColumnSet } from "../schema/columnSet.js";
import type { OwnedResult } from "../model/tasks.js";
import { completeFull } from "./completeFull.sql.js";
import { completePlain, isPlainResult } from "./completePlain.sql.js";
import { noOmissions, rejectedRepeatNote, type Omissions } from "../sql/omissions.js";
import { lockClasses, maxRejectedResultLocks } from "../../shared/postgres/advisoryLocks.js";
import { ShownLocks } from "../sql/shownLocks.sql.js";
import { replaceUnencodable } from "./replaceUnencodable.js";
import type { OwedSuccessors } from "../upkeep/owedSuccessors.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { RetryPolicy } from "../model/settings.js";
import type { Statistics } from "../telemetry/statistics.js";
import type { Tracing } from "../telemetry/tracing.js";
import { fullCompletionMs, maxRejectedRetryMs } from "../model/tuning.js";

export interface CompleterComponents {
  readonly table: TaskTable;
  readonly pendingResults: PendingResults;
  readonly deferredPauses: DeferredPauses;
  readonly groupScanner: GroupScanner;
  readonly largeResultWriter: LargeResultWriter;
  readonly knownSettings: RetryPolicy;
  readonly dependencies: Pick<Dependencies, "ended">;
  readonly owed: Pick<OwedSuccessors, "touch">;
  readonly statistics: Pick<Statistics, "retried">;
  readonly tracing: Tracing | null;
  readonly log: Log;
}

/**
 * Writes results to their rows, by one of two statements:
 *
 * - `completePlain` is used if all results are plain (nothing but their own rows changes) and runs are not traced. It
 *   costs two thirds of `completeFull`, but fails as a whole if a row is locked.
 * - `completeFull` is used for everything else, for what `completePlain` has left out, and for one second after it has
 *   failed.
 */
export class Completer {
  readonly #components: CompleterComponents;
  #columns: ColumnSet | null = null;
  readonly #rejected: RejectedRows;
  readonly #shownRejections: ShownLocks;
  /** The results that the server has rejected for a reason that is not transient, by their tasks' ids. */
  readonly #rejectedResults = new Map<string, OwnedResult>();
  #plainAllowedAt = 0;

  constructor(components: CompleterComponents) {
    this.#components = components;
    const { log } = components;
    this.#rejected = new RejectedRows(log);
    this.#shownRejections = new ShownLocks(lockClasses.rejectedResult, "rejected results", log);
  }

  /** Reads the table's columns, so that `write` can send its statement without an extra round trip. */
  async prepare(client: Client): Promise<void> {
    this.#columns ??= await readColumnSet(client, this.#components.table);
  }

  startLarge(managerClient: Client): void {
    this.#components.largeResultWriter.start(managerClient, async (client, result) => {
      await this.prepare(client);
      await this.#completeFull(client, [result]);
    });
  }

  /** Writes results. Throws an error only after each of them has been written or made pending again. */
  async write(client: Client, results: readonly OwnedResult[]): Promise<void> {
    // Only `completeFull` returns the states that tracing needs.
    const isPlainAllowed = this.#components.tracing === null && performance.now() >= this.#plainAllowedAt;
    // All results are written by one statement, so that no task is seen to end before a task that ended earlier.
    if (isPlainAllowed && results.every(isPlainResult)) await this.#completePlain(client, results);
    else await this.#completeFull(client, results);
    // After a crash of the server, results may have been discarded.
    for (const [id, result] of this.#rejectedResults) {
      if (!this.#components.pendingResults.has(result)) this.#rejectedResults.delete(id);
    }
    const shown = [...this.#rejectedResults.keys()].slice(0, maxRejectedResultLocks);
    await this.#shownRejections.show(client, shown.map(toLockKey));
  }

  async #completePlain(client: Client, results: readonly OwnedResult[]): Promise<void> {
    if (results.length === 0) return;
    let unwritten: ReadonlySet<string> | null = null;
    try {
      unwritten = await completePlain(client, this.#components.table, results);
    } catch (error) {
      this.#components.log.debug({ err: error }, "writing results failed, writing them step by step");
      this.#plainAllowedAt = performance.now() + fullCompletionMs;
    }
    const rest = results.filter(({ id }) => unwritten === null || unwritten.has(id));
    if (unwritten !== null) this.#accept(rest.length === 0 ? results : results.filter(({ id }) => !unwritten.has(id)));
    if (rest.length === 0) return;
    await this.#completeFull(client, rest);
    // The due tasks were read before these results were written, and one of the results may have set its task to PLAN.
    this.#components.groupScanner.markChanged();
  }

  /** Writes results by `completeFull`, in ever smaller parts if the server rejects some of them. */
  async #completeFull(client: Client, results: readonly OwnedResult[]): Promise<void> {
    const open = new Set(results);
    const owing = results.filter(({ owedNote }) => owedNote !== undefined);
    // A statement has one note at most.
    const parts = [
      owing.length === 0 ? results : results.filter(({ owedNote }) => owedNote === undefined),
      ...owing.map((result) => [result]),
    ];
    try {
      for (const part of parts) {
        const left = await changeRows(
          client,
          part,
          async (some) => {
            await this.#send(client, some, omissionsOf(some[0]));
            for (const result of some) open.delete(result);
          },
          async (result, error) => {
            await this.#completeRejected(client, result, error);
            open.delete(result);
          },
        );
        for (const result of left) open.delete(result);
        this.#components.pendingResults.requeueLast(left);
      }
    } catch (error) {
      this.#components.pendingResults.defer([...open]);
      throw error;
    }
  }

  async #send(client: Client, results: readonly OwnedResult[], omissions: Omissions): Promise<void> {
    if (results.length === 0) return;
    const columns = (this.#columns ??= await readColumnSet(client, this.#components.table));
    const { tracing } = this.#components;
    const since = tracing?.now() ?? 0;
    try {
      const options = { retry: this.#components.knownSettings, traced: tracing !== null, omissions };
      const completion = await completeFull(client, this.#components.table, columns, results, options);
      this.#components.groupScanner.markPlanned();
      tracing?.wrote(results, completion, since);
      const { lockedIds, deferredPauses, columnsChanged, retried, awaitedIds } = completion;
      this.#components.dependencies.ended(awaitedIds);
      if (retried.length > 0) this.#components.statistics.retried(retried);
      for (const { id, reason } of completion.failedRules) {
        this.#components.log.warn({ id, reason }, "query of a rule failed, its schedule has ended");
      }
      if (omissions.repetition !== null) this.#components.owed.touch();
      this.#components.deferredPauses.add(deferredPauses);
      if (columnsChanged) this.#columns = null;
      this.#accept(results);
      const rest = results.filter((result) => lockedIds.has(result.id));
      if (columnsChanged) this.#components.pendingResults.requeue(rest);
      else this.#components.pendingResults.defer(rest);
    } catch (error) {
      tracing?.writeFailed(results, error, since);
      if (sqlState(error) === null || isTransient(error)) throw error;
      if (!(await this.#haveColumnsChanged(client, columns))) throw error;
      this.#components.pendingResults.requeue(results);
    }
  }

  /**
   * Writes a result that the server has rejected. Each attempt omits more, but never the outcome of the run: characters
   * that the database cannot store, the group's pause (which is done later), the row's deletion, the repetition (the
   * successor is owed, and the row's error says so), and after some time the next try of a task that has failed.
   */
  async #completeRejected(client: Client, rejected: OwnedResult, error: DatabaseError): Promise<void> {
    const stored = replaceUnencodable(rejected, error);
    const result = stored ?? rejected;
    const base = omissionsOf(rejected);
    const send = (omissions: Omissions): Promise<void> => this.#send(client, [result], omissions);
    const retry = this.#rejected.ageMs(rejected.id) >= maxRejectedRetryMs;
    const isDeletable = result.output === null && result.error === null && result.largeOutput === undefined;
    const reason = await tryInOrder(error, [
      ...(stored === null ? [] : [() => send(base)]),
      () => send({ ...base, pause: true }),
      ...(isDeletable ? [(rejection: DatabaseError) => this.#completeUndeleted(rejected, rejection, send)] : []),
      (rejection) => send({ pause: true, repetition: rejectedRepeatNote(rejection), deletion: true, retry }),
    ]);
    if (reason === null) return;
    const message = "result rejected by the server, retrying";
    const until = this.#rejected.add(rejected.id, reason, message);
    this.#components.pendingResults.defer([rejected], until, !isTransient(reason));
    if (!isTransient(reason)) this.#rejectedResults.set(rejected.id, rejected);
  }

  /** Writes a result without deleting its row. Throws a transient rejection: the row can be deleted later. */
  async #completeUndeleted(
    { id }: OwnedResult,
    rejection: DatabaseError,
    send: (omissions: Omissions) => Promise<void>,
  ): Promise<void> {
    if (isTransient(rejection)) throw rejection;
    await send({ ...noOmissions, pause: true, deletion: true });
    this.#components.log.warn({ id, reason: toReport(rejection).message }, "finished task cannot be deleted");
  }

  /** Whether columns that the statement named have been dropped or renamed since. */
  async #haveColumnsChanged(client: Client, sent: ColumnSet): Promise<boolean> {
    const columns = await readColumnSet(client, this.#components.table);
    if (columns.name === sent.name) return false;
    this.#columns = columns;
    return true;
  }

  #accept(results: readonly OwnedResult[]): void {
    for (const { id } of results) {
      this.#rejected.delete(id);
      this.#rejectedResults.delete(id);
    }
  }
}

/** The answer of a query that has to run again is omitted although the server has not rejected it. */
const omissionsOf = (result: OwnedResult | undefined): Omissions =>
  result?.owedNote === undefined ? noOmissions : { ...noOmissions, repetition: result.owedNote };

const toLockKey = (id: string): number => Number(BigInt.asIntN(32, BigInt(id)));
