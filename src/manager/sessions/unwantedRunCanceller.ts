import type { Client } from "../../shared/postgres/client.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { SessionPool } from "./sessionPool.js";
import { changedTasks, unwantedRuns } from "./changedTasks.sql.js";
import { compareRowsMs, fewTasks, longQueuedMs } from "../model/tuning.js";

export interface UnwantedRunCancellerOptions {
  readonly table: TaskTable;
  readonly sessions: SessionPool;
}

/** Cancels runs whose rows were deleted or got another state, and recalls queued tasks whose rows were changed. */
export class UnwantedRunCanceller {
  readonly #components: UnwantedRunCancellerOptions;
  #isDue = false;
  /** If the manager was notified of a change of the table, any queued task may have been changed. */
  #wasNotified = false;
  #checkedAt = 0;

  constructor(components: UnwantedRunCancellerOptions) {
    this.#components = components;
  }

  /**
   * Compares tasks with their rows if that is due.
   *
   * @param request.checkRuns whether rows of claimed tasks may have been deleted or given another state
   */
  async check(
    client: Client,
    { checkRuns, notified }: { readonly checkRuns: boolean; readonly notified: boolean },
  ): Promise<void> {
    const { sessions, table } = this.#components;
    const { recalls } = sessions;
    this.#isDue ||= checkRuns;
    this.#wasNotified ||= notified;
    if (!this.#shouldCheck()) return;
    const current = this.#isDue ? sessions.currentTasks : [];
    const queued = sessions.queuedTasks(this.#wasNotified ? 0 : longQueuedMs);
    const wasRecalling = this.#isDue && recalls.isPending;
    this.#isDue = false;
    this.#wasNotified = false;
    this.#checkedAt = performance.now();
    // If one of the statements fails, these values stay, and the next check compares everything again.
    let [checkAgain, checkAllQueued] = [true, true];
    try {
      const [unwanted, changed] = await Promise.all([
        current.length > 0 ? unwantedRuns(client, table, current) : [],
        queued.length > 0 ? changedTasks(client, table, queued) : [],
      ]);
      for (const id of unwanted) sessions.cancel(id);
      recalls.recall(changed, false);
      // After a recall, the next check cancels the run of a task that has started in the meantime, and compares a task
      // that stays in its queue after all with its row.
      checkAllQueued = changed.length > 0 || wasRecalling;
      checkAgain = checkAllQueued;
    } finally {
      this.#isDue ||= checkAgain;
      this.#wasNotified ||= checkAllQueued;
    }
  }

  #shouldCheck(): boolean {
    const { busy, taskCount } = this.#components.sessions;
    const sinceMs = performance.now() - this.#checkedAt;
    const mayHaveOldQueuedTask = taskCount > busy && sinceMs >= longQueuedMs;
    if (!this.#isDue && !mayHaveOldQueuedTask) return false;
    return taskCount <= fewTasks || sinceMs >= compareRowsMs;
  }
}
