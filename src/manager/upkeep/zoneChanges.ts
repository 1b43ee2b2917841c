import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import type { TaskTable } from "../schema/taskTable.js";
import { lastingReason } from "../sql/rejectedRows.js";
import { zoneCheckIntervalMs, zoneCheckRows } from "../model/tuning.js";
import { plannedByRule, replanOutdated } from "./zoneChanges.sql.js";

/**
 * Replans tasks whose plans are no longer times of their rules, because the server has new time zone data. At the
 * start, and then once a day, all planned tasks are checked in small steps.
 */
export class ZoneChanges {
  readonly #table: TaskTable;
  readonly #log: Log;
  #unchecked: string[] = [];
  #notBefore = 0;

  constructor(options: { readonly table: TaskTable; readonly log: Log }) {
    this.#table = options.table;
    this.#log = options.log;
  }

  get pauseMs(): number {
    return Math.max(0, this.#notBefore - performance.now());
  }

  /** The last manager has checked the tasks. */
  defer(ms: number): void {
    this.#notBefore = performance.now() + ms;
  }

  /** Returns whether to go on at once. Throws if the connection is lost or the error is transient. */
  async step(client: Client): Promise<boolean> {
    if (this.pauseMs > 0) return false;
    try {
      if (this.#unchecked.length === 0) this.#unchecked = await plannedByRule(client, this.#table);
      const ids = this.#unchecked.splice(0, zoneCheckRows);
      const replanned = ids.length === 0 ? [] : await replanOutdated(client, this.#table, ids);
      for (const task of replanned) this.#log.info(task, "task replanned: time zone data have changed");
      if (this.#unchecked.length > 0) return true;
    } catch (error) {
      this.#log.warn({ reason: lastingReason(error) }, "cannot check the zones of rules");
    }
    this.#unchecked = [];
    this.#notBefore = performance.now() + zoneCheckIntervalMs;
    return false;
  }
}
