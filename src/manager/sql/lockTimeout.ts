import type { Client } from "../../shared/postgres/client.js";

/** How long statements of the manager's connection, and with them the whole cycle, wait for a lock, in ms. */
export const lockTimeoutMs = {
  /**
   * Locked rows are skipped, so only a user's trigger or a lock on the table can make a statement wait. Locks are
   * granted in the order of the requests, so with a shorter timeout, a statement might give up each time before its
   * turn.
   */
  normal: 1_000,
  /** For some time after a statement has run into its lock timeout. */
  reduced: 100,
  /** While the manager finds out which rows are rejected, with many statements of which each may have to wait. */
  isolating: 1,
  /** For statements that cannot skip locked rows, but have a fallback that can. */
  brief: 10,
};

const reducedForMs = 10_000;

interface LockWaits {
  /** How many calls are finding out which rows are rejected. */
  isolating: number;
  reducedUntil: number;
  /** As set on the server. */
  ms: number;
}

const lockWaits = new WeakMap<Client, LockWaits>();

/** To be called after a statement has run into its lock timeout. */
export async function recordLockTimeout(client: Client): Promise<void> {
  waitsOf(client).reducedUntil = performance.now() + reducedForMs;
  await updateLockTimeout(client);
}

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

/** Every cycle calls this, so a reduced timeout does not last longer than it should. */
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
