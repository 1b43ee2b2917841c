import type { Entry } from "../../shared/config/types.js";
import type { Client } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { TaskTable } from "../schema/taskTable.js";
import { hasNewPartitions } from "../schema/adoption/triggers.js";

export interface PartitionWatcherOptions {
  readonly table: TaskTable;
  readonly entry: () => Entry;
  readonly everyMs: () => number;
  readonly found: () => void;
  readonly log: Log;
}

/** Looks for new partitions, which lack the triggers and indexes that pg-task creates on each. */
export class PartitionWatcher {
  readonly #options: PartitionWatcherOptions;
  #checkedAt = performance.now();

  constructor(options: PartitionWatcherOptions) {
    this.#options = options;
  }

  check(client: Client): void {
    if (performance.now() - this.#checkedAt < this.#options.everyMs()) return;
    this.#checkedAt = performance.now();
    void this.#query(client);
  }

  async #query(client: Client): Promise<void> {
    const { table, entry, found, log } = this.#options;
    try {
      if (await hasNewPartitions(client, table, entry())) found();
    } catch (error) {
      // The cycles report errors of the connection or the table, so the error is only logged here.
      log.debug({ reason: toReport(error).message }, "partition check failed");
    }
  }
}
