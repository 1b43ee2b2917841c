import { DatabaseError } from "pg";
import { Backoff } from "../shared/backoff.js";
import { sqlState, type Client } from "../shared/postgres/client.js";
import { toReport } from "../shared/errors.js";
import type { Log } from "../shared/log.js";
import { isTransient } from "../shared/postgres/transientErrors.js";
import { waitedInVain, waitingApart } from "./sql/lockWait.js";

/** What data, constraints, routines and limits (say, of an index) are refused for, and what C triggers raise: of one row. */
const ofARow = /^(?:09|21|22|23|27|2F|38|39|44|54|P0|XX)/;
/** What is the server's own state, wherever it comes up. */
export const serverErrorClasses = /^(?:08|40|53|57|58)/;
/** Pauses before a row is tried again, in ms. */
const pauseMs = { first: 1_000, longest: 60_000 };
/** Most released ones that are remembered: they may have been deleted. */
const mostReleased = 10_000;
/** Longest pause before what may pass by itself, such as a lock, is tried again, in ms. */
const longestPassingMs = 5_000;
/** For how long nothing is said of what may pass by itself, in ms. */
const quietMs = 10_000;
/** For how long the rows of one call are told apart, in ms: all others wait meanwhile. */
const singleOutMs = 50;
/** Into how many parts rows are cut that were refused together. */
const parts = 32;

/**
 * Whether the server refused a statement for one of the rows that it was to change: by a constraint, or
 * by a trigger, in which anything may be raised. What may pass by itself is of a row where the server
 * says in what it came about: in a trigger, most likely one that waits for a lock, or at a row.
 */
export function isRowError(error: unknown): error is DatabaseError {
  if (!(error instanceof DatabaseError)) return false;
  const state = error.code ?? "";
  if (ofARow.test(state)) return true;
  return error.where !== undefined && (isTransient(error) || !serverErrorClasses.test(state));
}

/** Whether a statement has waited for a lock for as long as it may. */
export const isLocked = (error: unknown): boolean => sqlState(error) === "55P03";

/**
 * Has rows changed; where the server refuses that, they are tried in ever smaller parts, so that one row
 * holds up no other. The parts are sent together, so that a server far away is not waited for each time. At
 * least one row is settled each time, however long that takes.
 *
 * @param change may be called again before it has come back; rejects when none of the rows was changed.
 * @param refused what to do with a row that is refused alone.
 * @returns the rows that there was no time for.
 * @throws what is not refused for a row, once all that was sent has been answered.
 */
export async function singleOut<Row>(
  client: Client,
  rows: readonly Row[],
  change: (rows: readonly Row[]) => Promise<void>,
  refused: (row: Row, error: DatabaseError) => Promise<void> | void,
): Promise<Row[]> {
  const until = performance.now() + singleOutMs;
  let settled = false;
  const left: Row[] = [];

  /** False when they have to be tried in parts. */
  const attempt = async (some: readonly Row[]): Promise<boolean> => {
    const [first] = some;
    if (first === undefined) return true;
    try {
      await change(some);
    } catch (error) {
      if (!isRowError(error)) throw error;
      if (some === rows && isLocked(error)) await waitedInVain(client);
      if (some.length > 1) return false;
      await refused(first, error);
    }
    settled = true;
    return true;
  };

  const divide = async (some: readonly Row[]): Promise<void> => {
    const pieces = cut(some);
    const done = await allAnswered(pieces.map(attempt));
    for (const [index, piece] of pieces.entries()) {
      if (done[index] === true) continue;
      if (settled && performance.now() >= until) left.push(...piece);
      else await divide(piece);
    }
  };

  if (await attempt(rows)) return left;
  await waitingApart(client, () => divide(rows));
  return left;
}

/** @throws the first reason of a rejection, once all have settled. */
async function allAnswered(sent: readonly Promise<unknown>[]): Promise<unknown[]> {
  const outcomes = await Promise.allSettled(sent);
  return outcomes.map((outcome) => {
    if (outcome.status === "rejected") throw outcome.reason;
    return outcome.value;
  });
}

function cut<Row>(rows: readonly Row[]): Row[][] {
  const size = Math.ceil(rows.length / parts);
  return Array.from({ length: Math.ceil(rows.length / size) }, (_, index) =>
    rows.slice(index * size, (index + 1) * size),
  );
}

/**
 * Makes one attempt after the other at a row that was refused, until the server takes one.
 *
 * @param attempts each gets what the one before it was refused for.
 * @returns what the last one was refused for; null when one was taken.
 */
export async function attemptEach(
  refusal: DatabaseError,
  attempts: readonly ((refusal: DatabaseError) => Promise<void>)[],
): Promise<DatabaseError | null> {
  let last = refusal;
  for (const attempt of attempts) {
    try {
      await attempt(last);
      return null;
    } catch (error) {
      if (!isRowError(error)) throw error;
      last = error;
    }
  }
  return last;
}

interface Refused {
  readonly backoff: Backoff;
  /** When it is to be tried again, on the process's clock. */
  until: number;
  /** Since when it has been refused, on the process's clock. */
  readonly since: number;
  /** Whether the log names it. */
  said: boolean;
}

/**
 * Rows that the server refuses to change: each is named in the log once, and tried again after growing
 * pauses. What may pass by itself is tried again sooner, and said only when it has not passed in ten seconds.
 */
export class RejectedRows {
  readonly #log: Log;
  /** Those that were tried last come last: where there is no time for all, each has its turn. */
  readonly #rows = new Map<string, Refused>();
  /** Those that may be taken again: should they be refused again, their pauses go on growing. */
  readonly #released = new Map<string, Refused>();

  constructor(log: Log) {
    this.#log = log;
  }

  /** All of them, whether their pause is over or not. */
  get ids(): string[] {
    return [...this.#rows.keys()];
  }

  /** Those that are to be left alone now. */
  get waiting(): string[] {
    const now = performance.now();
    return [...this.#rows].flatMap(([id, { until }]) => (until > now ? id : []));
  }

  /** Those whose pause is over. */
  get due(): string[] {
    const now = performance.now();
    return [...this.#rows].flatMap(([id, { until }]) => (until > now ? [] : id));
  }

  /** Until the next one's pause is over, in ms; Infinity when there is none. */
  get pauseMs(): number {
    let until = Infinity;
    for (const row of this.#rows.values()) until = Math.min(until, row.until);
    return Math.max(0, until - performance.now());
  }

  /**
   * A row was refused.
   *
   * @param message what the log says of it the first time.
   * @returns until when it is to be left alone, on the process's clock.
   */
  add(id: string, error: unknown, message: string): number {
    let row = this.#rows.get(id) ?? this.#released.get(id);
    if (row === undefined) {
      const backoff = new Backoff({ firstMs: pauseMs.first, maxMs: pauseMs.longest });
      row = { backoff, until: 0, since: performance.now(), said: false };
    }
    const passing = isTransient(error);
    const tells = !passing || performance.now() - row.since >= quietMs;
    if (tells && !row.said) this.#log.error({ id, reason: toReport(error).message }, message);
    row.said ||= tells;
    this.#moveBack(id, row);
    this.#released.delete(id);
    const ms = row.backoff.next();
    row.until = performance.now() + (passing ? Math.min(ms, longestPassingMs) : ms);
    return row.until;
  }

  /** It could not be tried now, since somebody has it locked. */
  putOff(id: string): void {
    const row = this.#rows.get(id);
    if (row === undefined) return;
    row.until = performance.now() + pauseMs.first;
    this.#moveBack(id, row);
  }

  /** It was not refused any more, or is not there. */
  delete(id: string): void {
    this.#rows.delete(id);
    this.#released.delete(id);
  }

  /** It is one of them no more, as far as one can tell. */
  release(id: string): void {
    const row = this.#rows.get(id);
    if (row === undefined) return;
    this.#rows.delete(id);
    if (this.#released.size >= mostReleased) this.#released.clear();
    this.#released.set(id, row);
  }

  /** All whose pause is over were tried, and are not refused any more or not there. */
  deleteDue(): void {
    for (const id of this.due) this.delete(id);
  }

  #moveBack(id: string, row: Refused): void {
    this.#rows.delete(id);
    this.#rows.set(id, row);
  }
}
