import type { TaskTable } from "../../manager/schema/taskTable.js";
import type { Queryable } from "../../shared/postgres/client.js";
import { isFinalState } from "../../shared/taskState.js";
import type { TaskOutcome } from "../types.js";

/** Output and error are null while the task is claimed. */
interface TaskProgress {
  readonly state: string;
  readonly claimed: boolean;
  readonly output: string | null;
  readonly error: string | null;
}

/** By id. Only tasks whose rows exist. */
export async function readOutcomes(
  client: Queryable,
  { qualified }: TaskTable,
  ids: readonly string[],
): Promise<ReadonlyMap<string, TaskProgress>> {
  const { rows } = await client.query<TaskProgress & { readonly id: string }>(
    `SELECT t.id::pg_catalog.text AS id, t.state::pg_catalog.text AS state, t.owner IS NOT NULL AS claimed,
       CASE WHEN t.owner IS NULL THEN t.output::pg_catalog.text END AS output,
       CASE WHEN t.owner IS NULL THEN t.error::pg_catalog.text END AS error
     FROM ${qualified} AS t WHERE t.id OPERATOR(pg_catalog.=) ANY ($1::bigint[])`,
    [ids],
  );
  return new Map(rows.map(({ id, ...progress }) => [id, progress]));
}

const minPollMs = 20;
const maxPollMs = 500;

interface Waiter {
  readonly id: string;
  readonly onPoll: ((progress: TaskProgress) => void | Promise<void>) | undefined;
  readonly resolve: (outcome: TaskOutcome | null) => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * A manager notifies no one of the results that it writes, so rows are polled: by one statement for all waits, at
 * intervals that grow.
 */
export class OutcomePoller {
  readonly #read: (ids: readonly string[]) => ReturnType<typeof readOutcomes>;
  readonly #waiters = new Set<Waiter>();
  #pauseMs = minPollMs;
  #isPolling = false;
  #wake: () => void = () => {};

  constructor(read: (ids: readonly string[]) => ReturnType<typeof readOutcomes>) {
    this.#read = read;
  }

  /**
   * @param options.onPoll called after each poll that finds the task unfinished
   * @returns null if the task's row does not exist, or no longer exists
   * @throws the error of reading the row; the reason of the signal when it is aborted
   */
  async wait(
    id: string,
    options: {
      readonly signal?: AbortSignal | undefined;
      readonly onPoll?: (progress: TaskProgress) => void | Promise<void>;
    },
  ): Promise<TaskOutcome | null> {
    const { signal, onPoll } = options;
    signal?.throwIfAborted();
    return await new Promise((resolve, reject) => {
      const settle = (): void => {
        this.#waiters.delete(waiter);
        signal?.removeEventListener("abort", abort);
        if (this.#waiters.size === 0) this.#wake();
      };
      const waiter: Waiter = {
        id,
        onPoll,
        resolve: (outcome) => {
          settle();
          resolve(outcome);
        },
        reject: (reason) => {
          settle();
          reject(reason);
        },
      };
      const abort = (): void => waiter.reject(signal?.reason);
      signal?.addEventListener("abort", abort, { once: true });
      this.#waiters.add(waiter);
      this.#pauseMs = minPollMs;
      this.#wake();
      if (!this.#isPolling) void this.#poll();
    });
  }

  fail(reason: Error): void {
    for (const waiter of this.#waiters) waiter.reject(reason);
  }

  async #poll(): Promise<void> {
    this.#isPolling = true;
    while (this.#waiters.size > 0) {
      const asked = [...this.#waiters];
      try {
        const found = await this.#read([...new Set(asked.map(({ id }) => id))]);
        await Promise.all(asked.map((waiter) => inform(waiter, found.get(waiter.id))));
      } catch (error) {
        for (const waiter of asked) waiter.reject(error);
      }
      if (this.#waiters.size > 0) await this.#pause();
    }
    this.#isPolling = false;
  }

  /** Pauses until the next poll is due, a new wait begins, or nothing is waited for any more. */
  async #pause(): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, this.#pauseMs);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#wake = () => {};
    this.#pauseMs = Math.min(maxPollMs, this.#pauseMs * 1.5);
  }
}

async function inform(waiter: Waiter, progress: TaskProgress | undefined): Promise<void> {
  if (progress === undefined) {
    waiter.resolve(null);
    return;
  }
  const { state, claimed, output, error } = progress;
  if (!claimed && isFinalState(state)) {
    waiter.resolve({ id: waiter.id, state, output, error });
    return;
  }
  try {
    await waiter.onPoll?.(progress);
  } catch (reason) {
    waiter.reject(reason);
  }
}
