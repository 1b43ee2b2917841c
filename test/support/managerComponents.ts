import { ManagerComponents, type ManagerEvents } from "../../src/manager/loop/components.js";
import type { ManagerSettings } from "../../src/manager/model/settings.js";
import type { Log } from "../../src/shared/log.js";
import type { ConnectionTarget } from "../../src/shared/postgres/target/target.js";
import { retryPolicy } from "./retryPolicy.js";
import { makeEntry, silentLog } from "./taskTables.js";

export const managerSettings: ManagerSettings = {
  sleepMs: 1000,
  resetMs: 3_600_000,
  idle: 60,
  limit: 1000,
  fetch: 100,
  run: 1000,
  outputLimit: 64 << 20,
  crash: 3,
  slowMs: 0,
  closeMs: 60_000,
  batch: 100,
  restartMs: 1000,
  ...retryPolicy,
};

const nothing = (): void => {};

const nowhere: ConnectionTarget = {
  host: "127.0.0.1",
  port: 1,
  user: "nobody",
  database: "none",
  sslmode: "disable",
  connectTimeoutMs: 1,
};

/** Creates the components of a manager of the table public.task. The supervisor has not granted it any sessions. */
export function createComponents(
  target = nowhere,
  settings: Partial<ManagerSettings> = {},
  { log = silentLog, ...events }: Partial<ManagerEvents> & { readonly log?: Log } = {},
): ManagerComponents {
  const components = new ManagerComponents(
    { entry: makeEntry(target), managers: 1 },
    { send: nothing, log, threadLog: log },
    { sessionChanged: nothing, serverMoved: nothing, objectMissing: nothing, ...events },
  );
  components.settings = { ...managerSettings, ...settings };
  return components;
}
