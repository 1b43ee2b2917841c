import type { Entry } from "../../shared/config/types.js";
import type { Client } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { TaskTable } from "../schema/taskTable.js";
import { hasNewPartitions } from "../schema/adoption/repairAdopted.js";

export interface PartitionWatcherOptions {
  readonly table: TaskTable;
  readonly entry: () => Entry;
  readonly everyMs: () => number;
  /** There are some. */
  readonly found: () => void;
  readonly log: Log;
}

/** Looks from time to time whether partitions have come that lack what pg-task makes on each. */
export class PartitionWatcher {
  readonly #options: PartitionWatcherOptions;
  #lookedAt = performance.now();

  constructor(options: PartitionWatcherOptions) {
    this.#options = options;
  }

  /** Looks if it is time to; the answer comes later. */
  look(client: Client): void {
    if (performance.now() - this.#lookedAt < this.#options.everyMs()) return;
    this.#lookedAt = performance.now();
    void this.#ask(client);
  }

  async #ask(client: Client): Promise<void> {
    const { table, entry, found, log } = this.#options;
    try {
      if (await hasNewPartitions(client, table, entry())) found();
    } catch (error) {
      // What the connection or the table comes to is for the turns to tell.
      log.debug({ reason: toReport(error).message }, "partitions not seen");
    }
  }
}
