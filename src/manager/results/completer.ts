import type { DatabaseError } from "pg";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { LargeResultWriter } from "./largeResultWriter.js";
import type { GroupScanner } from "../groups/groupScanner.js";
import type { PendingResults } from "./pendingResults.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { DeferredPauses } from "../groups/deferredPauses.js";
import { attemptEach, RejectedRows, singleOut } from "../rejectedRows.js";
import { readColumnSet, type ColumnSet } from "../schema/columnSet.js";
import { completeFull, type OwnedResult } from "./completeFull.sql.js";
import { completePlain, isPlainResult } from "./completePlain.sql.js";
import { nothingSpared, withoutRepeat, type Spared } from "./withoutRepeat.sql.js";
import { replaceUnencodable } from "./replaceUnencodable.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { Tracing } from "../telemetry/tracing.js";

/** For how long nothing is written as plain after that has failed, in ms. */
const noPlainMs = 1_000;

/**
 * Writes what came out into the rows.
 *
 * Plain results are written without a look first whether somebody has locked their rows. Where that
 * fails, and for all others, there is the statement that does everything and passes locked rows over.
 */
export class Completer {
  readonly #table: TaskTable;
  readonly #outbox: PendingResults;
  readonly #pauses: DeferredPauses;
  readonly #lookout: GroupScanner;
  readonly #large: LargeResultWriter | null;
  readonly #tracing: Tracing | null;
  readonly #log: Log;
  /** Null when it has to be read anew. */
  #shape: ColumnSet | null = null;
  readonly #refusals: RejectedRows;
  #plainAfter = 0;

  constructor(options: {
    readonly table: TaskTable;
    readonly outbox: PendingResults;
    readonly pauses: DeferredPauses;
    readonly lookout: GroupScanner;
    readonly large: LargeResultWriter | null;
    readonly tracing: Tracing | null;
    readonly log: Log;
  }) {
    this.#table = options.table;
    this.#outbox = options.outbox;
    this.#pauses = options.pauses;
    this.#lookout = options.lookout;
    this.#large = options.large;
    this.#tracing = options.tracing;
    this.#log = options.log;
    this.#refusals = new RejectedRows(options.log);
  }

  /** Reads what it needs to know, so that `write` sends at once what it sends. */
  async prepare(client: Client): Promise<void> {
    this.#shape ??= await readColumnSet(client, this.#table);
  }

  /** Writes large outputs, over a connection of their own where that can be had. */
  startLarge(turns: Client): void {
    this.#large?.start(turns, async (client, result) => {
      await this.prepare(client);
      await this.#complete(client, [result]);
    });
  }

  /** @throws what the server said, once all of them are written, or in the outbox again. */
  async write(client: Client, results: readonly OwnedResult[]): Promise<void> {
    // What tracing tells of a row, only the other statement reads.
    const mayBePlain = this.#tracing === null && performance.now() >= this.#plainAfter;
    // All together: nobody is to see the end of a task before that of one which came before it.
    if (mayBePlain && results.every(isPlainResult)) await this.#completePlain(client, results);
    else await this.#complete(client, results);
  }

  async #completePlain(client: Client, results: readonly OwnedResult[]): Promise<void> {
    if (results.length === 0) return;
    let left: ReadonlySet<string> | null = null;
    try {
      left = await completePlain(client, this.#table, results);
    } catch (error) {
      this.#log.debug({ err: error }, "results are written one step at a time");
      this.#plainAfter = performance.now() + noPlainMs;
    }
    const rest = results.filter(({ id }) => left === null || left.has(id));
    if (left !== null) this.#accept(results);
    if (rest.length === 0) return;
    await this.#complete(client, rest);
    // It was looked for what is due before they were written: one may have been planned anew.
    this.#lookout.change();
  }

  /**
   * When the server refuses results (a trigger or a constraint of the user's), they are tried in halves,
   * so that one row holds up no other.
   */
  async #complete(client: Client, results: readonly OwnedResult[]): Promise<void> {
    const open = new Set(results);
    try {
      const left = await singleOut(
        client,
        results,
        async (some) => {
          await this.#send(client, some, nothingSpared);
          for (const result of some) open.delete(result);
        },
        async (result, error) => {
          await this.#completeRefused(client, result, error);
          open.delete(result);
        },
      );
      this.#outbox.putBehind(left, []);
    } catch (error) {
      this.#outbox.hold([...open], []);
      throw error;
    }
  }

  async #send(client: Client, results: readonly OwnedResult[], spared: Spared): Promise<void> {
    if (results.length === 0) return;
    const shape = (this.#shape ??= await readColumnSet(client, this.#table));
    const tracing = this.#tracing;
    const since = tracing?.now() ?? 0;
    try {
      const options = { traced: tracing !== null, spared };
      const completion = await completeFull(client, this.#table, shape, results, options);
      tracing?.wrote(results, completion, since);
      const { later, paused, outdated } = completion;
      this.#pauses.add(paused);
      if (outdated) this.#shape = null;
      this.#accept(results);
      const rest = results.filter((result) => later.has(result.id));
      if (outdated) this.#outbox.putBack(rest, []);
      else this.#outbox.hold(rest, []);
    } catch (error) {
      tracing?.notWritten(results, error, since);
      if (sqlState(error) === null || isTransient(error)) throw error;
      if (!(await this.#outdated(client, shape))) throw error;
      this.#outbox.putBack(results, []);
    }
  }

  /**
   * What is beside the row's own outcome is left out until the server takes it: characters that the
   * database cannot store, the pause of the group, which others wait for, the deletion of the row, which
   * stays, and a repetition, of which the row's error tells.
   */
  async #completeRefused(
    client: Client,
    refused: OwnedResult,
    error: DatabaseError,
  ): Promise<void> {
    const stored = replaceUnencodable(refused, error);
    const result = stored ?? refused;
    const send = (spared: Spared): Promise<void> => this.#send(client, [result], spared);
    const deletable = result.output === null && result.error === null && result.large === undefined;
    const reason = await attemptEach(error, [
      ...(stored === null ? [] : [() => send(nothingSpared)]),
      () => send({ ...nothingSpared, pause: true }),
      ...(deletable ? [(refusal: DatabaseError) => this.#keep(refused, refusal, send)] : []),
      (refusal) => send({ pause: true, repetition: withoutRepeat(refusal), deletion: true }),
    ]);
    if (reason === null) return;
    const message = "result refused by the server, it is tried again";
    const until = this.#refusals.add(refused.id, reason, message);
    this.#outbox.hold([refused], [], until, !isTransient(reason));
  }

  /** @throws the refusal itself where it may pass by itself: then the row is to be deleted later. */
  async #keep(
    { id }: OwnedResult,
    refusal: DatabaseError,
    send: (spared: Spared) => Promise<void>,
  ): Promise<void> {
    if (isTransient(refusal)) throw refusal;
    await send({ pause: true, repetition: null, deletion: true });
    this.#log.warn({ id, reason: toReport(refusal).message }, "finished task cannot be deleted");
  }

  /** Whether columns were dropped or renamed: what was sent named those of before. */
  async #outdated(client: Client, sent: ColumnSet): Promise<boolean> {
    const shape = await readColumnSet(client, this.#table);
    if (shape.name === sent.name) return false;
    this.#shape = shape;
    return true;
  }

  #accept(results: readonly OwnedResult[]): void {
    for (const { id } of results) this.#refusals.delete(id);
  }
}
