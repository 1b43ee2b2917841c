import type { Entry } from "../../shared/config/types.js";
import type { Client } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { TaskTable } from "../schema/taskTable.js";
import { hasNewPartitions } from "../schema/adoption/triggers.js";

interface Components {
  readonly table: TaskTable;
  readonly entry: Entry;
  /** Interval between two looks. */
  readonly resetMs: number;
  readonly log: Log;
}

/** Looks for new partitions, which lack the triggers and indexes that pg-task creates on each. */
export class PartitionWatcher {
  readonly #components: Components;
  readonly #found: () => void;
  #checkedAt = performance.now();

  constructor(components: Components, found: () => void) {
    this.#components = components;
    this.#found = found;
  }

  check(client: Client): void {
    if (performance.now() - this.#checkedAt < this.#components.resetMs) return;
    this.#checkedAt = performance.now();
    void this.#query(client);
  }

  async #query(client: Client): Promise<void> {
    const { table, entry, log } = this.#components;
    try {
      if (await hasNewPartitions(client, table, entry)) this.#found();
    } catch (error) {
      // The cycles report errors of the connection or the table, so the error is only logged here.
      log.debug({ reason: toReport(error).message }, "partition check failed");
    }
  }
}
