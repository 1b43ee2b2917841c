import { DatabaseError } from "pg";
import { Backoff } from "../../shared/backoff.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import { lockNotAvailable, uniqueViolation } from "../../shared/postgres/sqlStates.js";
import { recordLockTimeout, withShortLockTimeout } from "./lockTimeout.js";
import { isolationMs, maxTransientRetryMs, rejectedRowRetryMs } from "../model/tuning.js";

/** Errors that one row can cause: invalid data, constraints, routines, limits (as of an index), triggers in C. */
const rowErrorClasses = /^(?:09|21|22|23|27|2F|38|39|44|54|P0|XX)/;
/** Errors that describe the state of the server itself, wherever they occur. */
export const serverErrorClasses = /^(?:08|40|53|57|58)/;
/** Of the rows that are remembered after `allow`, some may have been deleted since. */
const maxAllowed = 10_000;
const transientQuietMs = 10_000;
const partCount = 32;

/**
 * Whether the server rejected a statement because of one of its rows: by a constraint, or by a trigger, which can raise
 * any error. A transient error counts if it has a context, because it then occurred at a row or in a trigger.
 */
export function isRowError(error: unknown): error is DatabaseError {
  if (!(error instanceof DatabaseError)) return false;
  const state = error.code ?? "";
  if (rowErrorClasses.test(state)) return true;
  return error.where !== undefined && (isTransient(error) || !serverErrorClasses.test(state));
}

/** Why a step of upkeep was refused. Throws the error if it is transient or the connection is lost. */
export function lastingReason(error: unknown): string {
  if (sqlState(error) === null || isTransient(error)) throw error;
  return toReport(error).message;
}

export const isLockTimeout = (error: unknown): boolean => sqlState(error) === lockNotAvailable;

/**
 * Changes rows in one statement. If the server rejects it, the rows are split into smaller and smaller parts, so that
 * one row does not block all others. The parts of a split are sent together. Each call settles at least one row.
 *
 * @param change changes all of the given rows or none; called concurrently
 * @returns the rows for which there was no time left
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

/** Only a second attempt sees a row with the same key that another client has inserted in the meantime. */
export async function changeOne(change: () => Promise<void>): Promise<void> {
  try {
    await change();
  } catch (error) {
    if (sqlState(error) !== uniqueViolation) throw error;
    await change();
  }
}

/** Waits until all promises have settled, and throws the first rejection. */
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
 * Tries a rejected row in other ways, one after another. Each attempt gets the error of the one before. Null if one was
 * accepted, otherwise the last error.
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
  retryAt: number;
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
  /** If a row that `allow` has removed is rejected again, its retry delay continues to grow. */
  readonly #allowed = new Map<string, RejectedRow>();

  constructor(log: Log) {
    this.#log = log;
  }

  /** During and after their retry delay. */
  get ids(): string[] {
    return [...this.#rows.keys()];
  }

  get delayedIds(): string[] {
    const now = performance.now();
    return [...this.#rows].flatMap(([id, row]) => (row.retryAt > now ? id : []));
  }

  get retryableIds(): string[] {
    const now = performance.now();
    return [...this.#rows].flatMap(([id, row]) => (row.retryAt > now ? [] : id));
  }

  /** Infinity if no row is rejected. */
  get nextRetryMs(): number {
    let until = Infinity;
    for (const row of this.#rows.values()) until = Math.min(until, row.retryAt);
    return Math.max(0, until - performance.now());
  }

  /** How long ago the row was first rejected. 0 if it has not been. */
  ageMs(id: string): number {
    const row = this.#rows.get(id);
    return row === undefined ? 0 : performance.now() - row.rejectedSince;
  }

  /** Returns when the row's retry delay ends, on the process's clock. */
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

  /** After the row was changed or deleted. */
  delete(id: string): void {
    this.#rows.delete(id);
    this.#allowed.delete(id);
  }

  /** After a trial succeeded. Remembers the length of the retry delay. */
  allow(id: string): void {
    const row = this.#rows.get(id);
    if (row === undefined) return;
    this.#rows.delete(id);
    if (this.#allowed.size >= maxAllowed) this.#allowed.clear();
    this.#allowed.set(id, row);
  }

  /** After a statement that included these rows succeeded. */
  deleteRetryable(): void {
    for (const id of this.retryableIds) this.delete(id);
  }

  #moveToEnd(id: string, row: RejectedRow): void {
    this.#rows.delete(id);
    this.#rows.set(id, row);
  }
}
