import type { Client } from "../../shared/postgres/client.js";

/** How long statements of the manager's connection wait for a lock, in ms. The whole cycle waits during this time. */
export const lockTimeoutMs = {
  /**
   * The usual timeout. Locked rows are skipped, so only a user's trigger or a lock on the table can make a statement
   * wait. The server grants locks in the order of the requests. With a shorter timeout, a statement might give up each
   * time before its turn.
   */
  normal: 1_000,
  /** The timeout that applies for some time after a statement has run into its lock timeout. */
  reduced: 100,
  /**
   * The timeout while the manager finds out which rows are rejected. It is very short, because each of these statements
   * may have to wait for a lock.
   */
  isolating: 1,
  /** The timeout of statements that cannot skip locked rows, but have a fallback that can. */
  brief: 10,
};

/** How long a connection keeps the reduced timeout after a statement has run into its lock timeout, in ms. */
const reducedForMs = 10_000;

interface LockWaits {
  /** How many calls are currently finding out which rows are rejected. */
  isolating: number;
  /** When the normal timeout applies again, on the process's clock. */
  reducedUntil: number;
  /** The timeout that is currently set on the server, in ms. */
  ms: number;
}

const lockWaits = new WeakMap<Client, LockWaits>();

/** Reduces the timeout of the next statements. To be called after a statement has run into its lock timeout. */
export async function recordLockTimeout(client: Client): Promise<void> {
  waitsOf(client).reducedUntil = performance.now() + reducedForMs;
  await updateLockTimeout(client);
}

/** Runs `work` with the shortest lock timeout. */
export async function withShortLockTimeout(client: Client, work: () => Promise<unknown>): Promise<void> {
  const waits = waitsOf(client);
  waits.isolating += 1;
  try {
    // The new timeout and the work are sent together, in this order.
    const outcomes = await Promise.allSettled([updateLockTimeout(client), work()]);
    for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
  } finally {
    waits.isolating -= 1;
    await updateLockTimeout(client);
  }
}

/**
 * Sends the timeout that applies now, if it has changed. Every cycle calls this, so a reduced timeout does not last
 * longer than it should.
 */
export async function updateLockTimeout(client: Client): Promise<void> {
  const waits = waitsOf(client);
  const { normal, reduced, isolating } = lockTimeoutMs;
  const isReduced = performance.now() < waits.reducedUntil;
  const ms = waits.isolating > 0 ? isolating : isReduced ? reduced : normal;
  if (ms === waits.ms) return;
  waits.ms = ms;
  await client.query("SELECT set_config('lock_timeout', $1, false)", [String(ms)]);
}

function waitsOf(client: Client): LockWaits {
  let waits = lockWaits.get(client);
  if (waits === undefined) lockWaits.set(client, (waits = { isolating: 0, reducedUntil: 0, ms: lockTimeoutMs.normal }));
  return waits;
}
