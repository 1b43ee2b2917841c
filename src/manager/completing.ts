import { sqlState, type Client } from "../shared/database.js";
import type { Log } from "../shared/log.js";
import type { LargeResults } from "./largeResults.js";
import type { Lookout } from "./lookout.js";
import type { Outbox } from "./outbox.js";
import { isPassing } from "./passing.js";
import type { Pauses } from "./pauses.js";
import { readShape, type Shape } from "./shape.js";
import { complete, type OwnedResult } from "./sql/complete.js";
import { completePlain, isPlain } from "./sql/completePlain.js";
import { storable } from "./storable.js";
import type { TaskTable } from "./table.js";
import type { Tracing } from "./tracing.js";

/** For how long nothing is written as plain after that has failed, in ms. */
const noPlainMs = 1_000;

/**
 * Writes what came out into the rows.
 *
 * Plain results are written without a look first whether somebody has locked their rows. Where that
 * fails, and for all others, there is the statement that does everything and passes locked rows over.
 */
export class Completing {
  readonly #table: TaskTable;
  readonly #outbox: Outbox;
  readonly #pauses: Pauses;
  readonly #lookout: Lookout;
  readonly #large: LargeResults | null;
  readonly #tracing: Tracing | null;
  readonly #log: Log;
  /** Null when it has to be read anew. */
  #shape: Shape | null = null;
  /** Results that the server refused: said once, not at each try. */
  readonly #refused = new Set<string>();
  #plainAfter = 0;

  constructor(options: {
    readonly table: TaskTable;
    readonly outbox: Outbox;
    readonly pauses: Pauses;
    readonly lookout: Lookout;
    readonly large: LargeResults | null;
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
  }

  /** Reads what it needs to know, so that `write` sends at once what it sends. */
  async prepare(client: Client): Promise<void> {
    this.#shape ??= await readShape(client, this.#table);
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
    if (mayBePlain && results.every(isPlain)) await this.#completePlain(client, results);
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
   * When the server refuses results (a trigger of the user's on one of the rows), they are tried in
   * halves, so that one row holds up no other. One with characters that the database cannot store is
   * written without them, as FAIL.
   */
  async #complete(client: Client, results: readonly OwnedResult[]): Promise<void> {
    if (results.length === 0) return;
    const shape = (this.#shape ??= await readShape(client, this.#table));
    const tracing = this.#tracing;
    const since = tracing?.now() ?? 0;
    try {
      const completion = await complete(client, this.#table, shape, results, tracing !== null);
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
      if (sqlState(error) === null || isPassing(error)) {
        this.#outbox.hold(results, []);
        throw error;
      }
      const outdated = await this.#outdated(client, shape).catch((lost: unknown) => {
        this.#outbox.hold(results, []);
        throw lost;
      });
      if (outdated) {
        this.#outbox.putBack(results, []);
        return;
      }
      if (results.length > 1) {
        const middle = results.length >> 1;
        try {
          await this.#complete(client, results.slice(0, middle));
        } finally {
          await this.#complete(client, results.slice(middle));
        }
        return;
      }
      for (const result of results) await this.#completeStorable(client, result, error);
    }
  }

  async #completeStorable(client: Client, refused: OwnedResult, error: unknown): Promise<void> {
    const rest = storable(refused, error);
    if (rest !== null) return await this.#complete(client, [rest]);
    this.#sayRefused(refused.id, error);
    this.#outbox.hold([refused], []);
  }

  /** Whether columns were dropped or renamed: what was sent named those of before. */
  async #outdated(client: Client, sent: Shape): Promise<boolean> {
    const shape = await readShape(client, this.#table);
    if (shape.name === sent.name) return false;
    this.#shape = shape;
    return true;
  }

  #accept(results: readonly OwnedResult[]): void {
    for (const { id } of results) this.#refused.delete(id);
  }

  #sayRefused(id: string, error: unknown): void {
    if (this.#refused.has(id)) return;
    this.#refused.add(id);
    this.#log.error({ id, err: error }, "result refused by the server, it is tried again");
  }
}
