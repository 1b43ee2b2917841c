import { BusyMode, type BusyModeLimits } from "../../src/manager/loop/busyMode.js";
import type { ManagerComponents } from "../../src/manager/loop/components.js";
import { ManagerLoop } from "../../src/manager/loop/managerLoop.js";
import { WorkCycle } from "../../src/manager/loop/workCycle.js";
import { readSettings, type ManagerSettings } from "../../src/manager/model/settings.js";
import { listenToTable } from "../../src/manager/schema/listen.js";
import type { Client } from "../../src/shared/postgres/client.js";
import type { ConnectionTarget } from "../../src/shared/postgres/target/target.js";
import { unreservedStarts } from "./claims.js";
import { createComponents } from "./managerComponents.js";
import { makeEntry, silentLog } from "./taskTables.js";

export interface ManagerLoopOverrides {
  readonly workCycle?: typeof WorkCycle;
  readonly busyMode?: typeof BusyMode;
  readonly limits?: BusyModeLimits;
  /** By default, the manager checks the table every millisecond, and enters deep sleep after one check. */
  readonly settings?: Pick<ManagerSettings, "sleepMs" | "idle">;
  /** Replaces components, or methods of theirs. */
  readonly components?: (components: ManagerComponents) => { readonly [Name in keyof ManagerComponents]?: object };
}

/** Keeps a manager from pruning. Otherwise, the cycle that prunes soon after each task would also find new tasks. */
export function withoutPruning({ pruner }: ManagerComponents): object {
  return { pruner: Object.defineProperty(pruner, "pauseMs", { value: Infinity }) };
}

/** Replaces what a manager does when it finds more tasks than it has sessions for, which is to open more. */
export function hearingGrowth(components: ManagerComponents, hear: (more: number) => void): object {
  const grow = async (_: Client, more: number): Promise<void> => {
    if (more > 0) hear(more);
  };
  return { poolScaler: Object.assign(components.poolScaler, { grow }) };
}

export interface StartedManagerLoop {
  wake(): void;
  /** Stops the loop. Resolves when it has ended. */
  stop(): Promise<void>;
}

const nothing = (): void => {};

/** Runs a manager loop on the table public.task, without executors. */
export async function startManagerLoop(
  manager: Client,
  target: ConnectionTarget,
  overrides: ManagerLoopOverrides,
): Promise<StartedManagerLoop> {
  const settings = await readSettings(manager, makeEntry(target), silentLog);
  const components = createComponents(target, { ...settings, ...(overrides.settings ?? { sleepMs: 1, idle: 1 }) });
  const reserve = { starts: unreservedStarts(Infinity), kept: 0, allows: () => false };
  Object.assign(components, { reserve }, overrides.components?.(components));
  const { rows } = await manager.query<{ oid: number }>("SELECT 'public.task'::regclass::oid AS oid");
  const channels = await listenToTable(manager, components.table);
  const loop = new ManagerLoop(manager, components, {
    workCycle: new (overrides.workCycle ?? WorkCycle)(components),
    busyMode: new (overrides.busyMode ?? BusyMode)(manager, rows[0]?.oid ?? 0, overrides.limits),
    homeGuard: { isHeld: false, mayStart: () => Promise.resolve(true) },
    otherManagers: { watchOwners: nothing },
    watchdog: { expectAnswer: nothing },
    unlock: () => Promise.resolve(),
    cycled: nothing,
    watched: { oid: rows[0]?.oid ?? 0, channels, rollCall: "none" },
    isWoken: false,
    isSettled: false,
    isReloading: () => false,
  });
  manager.on("notification", () => loop.receiveNotification());
  let over = false;
  const work = loop.run(() => over);
  return {
    wake: () => loop.receiveNotification(),
    async stop() {
      over = true;
      components.wakeSignal.notify();
      await work;
    },
  };
}
