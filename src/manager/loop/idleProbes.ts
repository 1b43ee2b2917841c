import { applicationNames } from "../../shared/postgres/applicationNames.js";
import type { Client } from "../../shared/postgres/client.js";
import { ConnectionWatchdog } from "../../shared/postgres/connectionWatchdog.js";

/** How long the server can be silent, in ms, before the manager checks whether its own connection is half-open. */
const busyQuietMs = 150;

/**
 * The same while the manager waits for the table lock or is in deep sleep, in ms. The managers of one process together
 * send at most one probe every `perManager` ms: with a hundred idle managers, probes every `least` ms would be most of
 * what the process does.
 */
const idleQuietMs = { least: 4_500, perManager: 200, most: 30_000 };

/** Returns how long the server can be silent in deep sleep, in ms, if the process has this many managers. */
export function sleeperQuietMs(managers: number): number {
  const { least, perManager, most } = idleQuietMs;
  return Math.min(Math.max(least, managers * perManager), most);
}

/**
 * Probes the manager's connection whenever it is silent, and more rarely while its loss would not be felt at once.
 *
 * @param state returns how many managers the process has, and whether this one is in deep sleep; null before it has
 *   begun to serve its table
 */
export const probeConnection = (
  client: Client,
  state: () => { readonly managers: number; readonly isAsleep: boolean | null },
): ConnectionWatchdog =>
  new ConnectionWatchdog(client, {
    name: applicationNames.managerWatch,
    quietMs: busyQuietMs,
    restMs: () => {
      const { managers, isAsleep } = state();
      if (isAsleep === false) return null;
      return sleeperQuietMs(isAsleep === null ? 1 : managers);
    },
  });
