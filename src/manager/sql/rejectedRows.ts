import { DatabaseError } from "pg";
import { Backoff } from "../../shared/backoff.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import { lockNotAvailable, uniqueViolation } from "../../shared/postgres/sqlStates.js";
import { recordLockTimeout, withShortLockTimeout } from "./lockTimeout.js";
import { isolationMs, maxTransientRetryMs, rejectedRowRetryMs } from "../model/tuning.js";

/**
 * SQLSTATE classes of errors that one row can cause: invalid data, constraints, routines, limits (of an index, for
 * example), and triggers in C.
 */
const rowErrorClasses = /^(?:09|21|22|23|27|2F|38|39|44|54|P0|XX)/;
/** SQLSTATE classes that describe the state of the server itself, wherever the error occurs. */
export const serverErrorClasses = /^(?:08|40|53|57|58)/;
/** Maximum number of rows that are remembered after `allow`. Some of these rows may have been deleted since. */
const maxAllowed = 10_000;
/** How long transient errors of a row are not logged, in ms. */
const transientQuietMs = 10_000;
/** When rows were rejected together, they are split into this many parts. */
const partCount = 32;

/**
 * Returns whether the server rejected a statement because of one of its rows. The cause can be a constraint or a
 * trigger, and a trigger can raise any error. A transient error counts if the server reports a context for it. The
 * context shows that the error occurred at a row or in a trigger, most likely in a trigger that waits for a lock.
 */
export function isRowError(error: unknown): error is DatabaseError {
  if (!(error instanceof DatabaseError)) return false;
  const state = error.code ?? "";
  if (rowErrorClasses.test(state)) return true;
  return error.where !== undefined && (isTransient(error) || !serverErrorClasses.test(state));
}

/** Returns whether a statement failed because of its lock timeout. */
export const isLockTimeout = (error: unknown): boolean => sqlState(error) === lockNotAvailable;

/**
 * Changes rows in one statement. If the server rejects the statement, the rows are split into smaller and smaller
 * parts, so that one row does not block all others. The parts of one split are sent together to save round trips. Each
 * call settles at least one row, however long that takes.
 *
 * @param change changes all of the given rows, or rejects and changes none of them; called concurrently
 * @param onRejected called for each row that is rejected even on its own
 * @returns the rows that are neither changed nor known to be rejected, because there was no time left to try them
 * @throws any error that is not caused by a row, once all statements have been answered
 */
export async function changeRows<Row>(
  client: Client,
  rows: readonly Row[],
  change: (rows: readonly Row[]) => Promise<void>,
  onRejected: (row: Row, error: DatabaseError) => Promise<void> | void,
): Promise<Row[]> {
  const until = performance.now() + isolationMs;
  let isAnySettled = false;
  const remaining: Row[] = [];

  /** @returns false if the rows have to be split */
  const attempt = async (part: readonly Row[]): Promise<boolean> => {
    const [first] = part;
    if (first === undefined) return true;
    try {
      await (part.length > 1 ? change(part) : changeOne(() => change(part)));
    } catch (error) {
      if (!isRowError(error)) throw error;
      if (part === rows && isLockTimeout(error)) await recordLockTimeout(client);
      if (part.length > 1) return false;
      await onRejected(first, error);
    }
    isAnySettled = true;
    return true;
  };

  const isolate = async (part: readonly Row[]): Promise<void> => {
    const parts = split(part);
    const settled = await allAnswered(parts.map(attempt));
    for (const [index, each] of parts.entries()) {
      if (settled[index] === true) continue;
      if (isAnySettled && performance.now() >= until) remaining.push(...each);
      else await isolate(each);
    }
  };

  if (await attempt(rows)) return remaining;
  await withShortLockTimeout(client, () => isolate(rows));
  return remaining;
}

/**
 * Changes one row. If this violates a unique index, it is tried a second time at once: another client may have inserted
 * a row with the same key in the meantime, and only the second attempt sees that row.
 */
export async function changeOne(change: () => Promise<void>): Promise<void> {
  try {
    await change();
  } catch (error) {
    if (sqlState(error) !== uniqueViolation) throw error;
    await change();
  }
}

/**
 * Waits until all promises have settled.
 *
 * @throws the first rejection
 */
async function allAnswered(sent: readonly Promise<unknown>[]): Promise<unknown[]> {
  const outcomes = await Promise.allSettled(sent);
  return outcomes.map((outcome) => {
    if (outcome.status === "rejected") throw outcome.reason;
    return outcome.value;
  });
}

function split<Row>(rows: readonly Row[]): Row[][] {
  const size = Math.ceil(rows.length / partCount);
  return Array.from({ length: Math.ceil(rows.length / size) }, (_, index) =>
    rows.slice(index * size, (index + 1) * size),
  );
}

/**
 * Makes fallback attempts at a rejected row, one after another, until the server accepts an attempt.
 *
 * @param attempts fallback attempts; each receives the error of the previous attempt
 * @returns the error of the last attempt, or null if an attempt was accepted
 */
export async function tryInOrder(
  rejection: DatabaseError,
  attempts: readonly ((rejection: DatabaseError) => Promise<void>)[],
): Promise<DatabaseError | null> {
  let last = rejection;
  for (const attempt of attempts) {
    try {
      await changeOne(() => attempt(last));
      return null;
    } catch (error) {
      if (!isRowError(error)) throw error;
      last = error;
    }
  }
  return last;
}

interface RejectedRow {
  readonly backoff: Backoff;
  /** When the row can be retried, on the process's clock. */
  retryAt: number;
  /** When the row was first rejected, on the process's clock. */
  readonly rejectedSince: number;
  isLogged: boolean;
}

/**
 * Rows that the server refuses to change. Each row is logged once, and retried at growing intervals. After a transient
 * error, a row is retried sooner, and is logged only if the error persists for ten seconds.
 *
 *     add ──▶ delayed ──delay is over──▶ retryable ──add──▶ delayed
 *                │                        │    │
 *                └──────────allow─────────┘    └──delete──▶ forgotten
 *                             ▼
 *                          allowed ──add──▶ delayed, with the longer delay
 */
export class RejectedRows {
  readonly #log: Log;
  /** Rows in the order of their last retry, so that each row gets its turn when there is no time for all of them. */
  readonly #rows = new Map<string, RejectedRow>();
  /**
   * Rows that `allow` has removed from the rejected ones. If such a row is rejected again, its retry delay continues to
   * grow.
   */
  readonly #allowed = new Map<string, RejectedRow>();

  constructor(log: Log) {
    this.#log = log;
  }

  /** All rejected rows, both during and after their retry delay. */
  get ids(): string[] {
    return [...this.#rows.keys()];
  }

  /** Rows whose retry delay is not over yet. */
  get delayedIds(): string[] {
    const now = performance.now();
    return [...this.#rows].flatMap(([id, row]) => (row.retryAt > now ? id : []));
  }

  /** Rows whose retry delay is over. */
  get retryableIds(): string[] {
    const now = performance.now();
    return [...this.#rows].flatMap(([id, row]) => (row.retryAt > now ? [] : id));
  }

  /** Time until the next row can be retried, in ms. Infinity if no row is rejected. */
  get nextRetryMs(): number {
    let until = Infinity;
    for (const row of this.#rows.values()) until = Math.min(until, row.retryAt);
    return Math.max(0, until - performance.now());
  }

  /** How long ago a row was first rejected, in ms. 0 if it has not been. */
  ageMs(id: string): number {
    const row = this.#rows.get(id);
    return row === undefined ? 0 : performance.now() - row.rejectedSince;
  }

  /**
   * Records that a row was rejected.
   *
   * @param message the message to log
   * @returns when the row's retry delay ends, on the process's clock
   */
  add(id: string, error: unknown, message: string): number {
    let row = this.#rows.get(id) ?? this.#allowed.get(id);
    if (row === undefined) {
      const backoff = new Backoff({
        firstMs: rejectedRowRetryMs.first,
        maxMs: rejectedRowRetryMs.max,
      });
      row = { backoff, retryAt: 0, rejectedSince: performance.now(), isLogged: false };
    }
    const transient = isTransient(error);
    const shouldLog = !transient || performance.now() - row.rejectedSince >= transientQuietMs;
    if (shouldLog && !row.isLogged) this.#log.error({ id, reason: toReport(error).message }, message);
    row.isLogged ||= shouldLog;
    this.#moveToEnd(id, row);
    this.#allowed.delete(id);
    const ms = row.backoff.next();
    row.retryAt = performance.now() + (transient ? Math.min(ms, maxTransientRetryMs) : ms);
    return row.retryAt;
  }

  /** Restarts the retry delay of a row that could not be tried because it is locked. */
  postpone(id: string): void {
    const row = this.#rows.get(id);
    if (row === undefined) return;
    row.retryAt = performance.now() + rejectedRowRetryMs.first;
    this.#moveToEnd(id, row);
  }

  /** Forgets a row because it was changed or no longer exists. */
  delete(id: string): void {
    this.#rows.delete(id);
    this.#allowed.delete(id);
  }

  /** Treats a row as no longer rejected after a trial succeeded, but remembers the length of its retry delay. */
  allow(id: string): void {
    const row = this.#rows.get(id);
    if (row === undefined) return;
    this.#rows.delete(id);
    if (this.#allowed.size >= maxAllowed) this.#allowed.clear();
    this.#allowed.set(id, row);
  }

  /** Forgets all rows whose retry delay is over, because a statement that included these rows succeeded. */
  deleteRetryable(): void {
    for (const id of this.retryableIds) this.delete(id);
  }

  #moveToEnd(id: string, row: RejectedRow): void {
    this.#rows.delete(id);
    this.#rows.set(id, row);
  }
}
