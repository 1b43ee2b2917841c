import type { Client } from "../../shared/postgres/client.js";

/** How long statements of the manager's connection wait for a lock, in ms: all others wait meanwhile. */
export const lockWaitMs = {
  /**
   * Rows that somebody has locked are passed over, so it is a trigger of the user's that waits, or the table is
   * locked. The server grants locks in the order in which they are asked for: who waits for less may never get one.
   */
  usual: 1_000,
  /** After a wait was in vain. */
  wary: 100,
  /** While rows are told apart, one of which may have to wait. */
  apart: 1,
  /** Of statements that pass over no locked row, instead of which others can be sent. */
  brief: 10,
};

/** For how long a connection is wary after a wait was in vain, in ms. */
const waryForMs = 10_000;

interface Waits {
  /** How many are telling rows apart. */
  apart: number;
  /** When it waits as usual again, on the process's clock. */
  waryUntil: number;
  /** What the server was told last, in ms. */
  ms: number;
}

const waits = new WeakMap<Client, Waits>();

/** SQL of a condition that is true, and limits how long its statement waits for rows. */
export const lockWait = `(SELECT set_config('lock_timeout', '${lockWaitMs.brief}ms', true)) IS NOT NULL`;

/** A statement of the connection has waited for a lock in vain. */
export async function waitedInVain(client: Client): Promise<void> {
  waitsOf(client).waryUntil = performance.now() + waryForMs;
  await adjustLockWait(client);
}

/** Has the statements of `work` wait hardly at all. */
export async function waitingApart(client: Client, work: () => Promise<unknown>): Promise<void> {
  const its = waitsOf(client);
  its.apart += 1;
  try {
    // Both are sent at once, in this order.
    const outcomes = await Promise.allSettled([adjustLockWait(client), work()]);
    for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
  } finally {
    its.apart -= 1;
    await adjustLockWait(client);
  }
}

/** To be called from time to time, so that a connection does not stay wary. */
export async function adjustLockWait(client: Client): Promise<void> {
  const its = waitsOf(client);
  const { usual, wary, apart } = lockWaitMs;
  const ms = its.apart > 0 ? apart : performance.now() < its.waryUntil ? wary : usual;
  if (ms === its.ms) return;
  its.ms = ms;
  await client.query("SELECT set_config('lock_timeout', $1, false)", [String(ms)]);
}

function waitsOf(client: Client): Waits {
  let its = waits.get(client);
  if (its === undefined)
    waits.set(client, (its = { apart: 0, waryUntil: 0, ms: lockWaitMs.usual }));
  return its;
}
