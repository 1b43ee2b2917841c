import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { TaskTable } from "../schema/taskTable.js";
import { claimFull, type ClaimRequest, type ClaimResult } from "./claimFull.sql.js";
import { claimQueued, isQueuedClaim } from "./claimQueued.sql.js";

/** The result of a claim that found nothing. */
export const emptyClaim: ClaimResult = {
  claimed: [],
  late: [],
  locked: [],
  heads: [],
  more: 0,
  moreOf: new Set(),
  exclusive: 0,
};

/** Sends each claim as a queued claim if possible, and otherwise as a full claim. */
export class ClaimStrategy {
  readonly #table: TaskTable;
  readonly #log: Log;
  /** Whether the last claim found a task that only a full claim can handle. */
  #needsFull = false;

  constructor(table: TaskTable, log: Log) {
    this.#table = table;
    this.#log = log;
  }

  get needsFull(): boolean {
    return this.#needsFull;
  }

  async claim(client: Client, request: ClaimRequest): Promise<ClaimResult> {
    if (!this.#needsFull && isQueuedClaim(request)) {
      try {
        const { needsFull, claimed, heads } = await claimQueued(client, this.#table, request);
        this.#needsFull = needsFull;
        return { ...emptyClaim, claimed, heads: heads.map((head) => ({ ...head, paused: false })) };
      } catch (error) {
        if (!isTransient(error)) throw error;
        this.#log.debug({ err: error }, "queued claim failed, sending a full claim");
      }
    }
    const result = await claimFull(client, this.#table, request);
    const { late, locked, exclusive, claimed, heads } = result;
    this.#needsFull =
      late.length + locked.length + exclusive > 0 ||
      claimed.some((task) => task.exclusive) ||
      heads.some(({ paused }) => paused);
    return result;
  }
}
