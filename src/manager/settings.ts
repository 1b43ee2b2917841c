import type { Entry } from "../shared/config/types.js";
import { refuseTo, settingNumber, settingsMade } from "../shared/config/serverSettings.js";
import { sqlState, type Client } from "../shared/postgres/client.js";
import type { Log } from "../shared/log.js";

/** What a manager goes by, as its role, its database, the server and the file have it. */
export interface ManagerSettings {
  /** How often the table is checked while awake, in ms. */
  readonly sleepMs: number;
  /** How often orphaned tasks are looked for, in ms. */
  readonly resetMs: number;
  /** Empty checks before deep sleep. */
  readonly idle: number;
  /** Most tasks claimed in one check, and of one claim statement. */
  readonly limit: number;
  readonly fetch: number;
  /** Most tasks running at once. */
  readonly run: number;
  /** Most output kept of one task, in bytes. */
  readonly outputLimit: number;
  /** Deaths of its own session after which a task is FAIL. */
  readonly crash: number;
  /** How long an executor may take to take a payload, in ms. */
  readonly closeMs: number;
  /** Most rows of one statement that expires or rescues. */
  readonly batch: number;
  /** Longest pause before a failed executor is started again, in ms. */
  readonly restartMs: number;
}

const numeric = [
  "pg_task.sleep",
  "pg_task.idle",
  "pg_task.limit",
  "pg_task.fetch",
  "pg_task.run",
  "pg_task.output",
  "pg_task.crash",
  "pg_work.close",
  "pg_work.fetch",
  "pg_work.restart",
] as const;

/** Another name of pg_task.idle, below it. */
const idleAlias = "pg_work.idle";

/** The settings that are others now, each with its new value. */
export function changedSettings(
  before: ManagerSettings,
  now: ManagerSettings,
): Partial<ManagerSettings> {
  const known = new Map<string, number>(Object.entries(before));
  return Object.fromEntries(
    Object.entries(now).filter(([name, value]) => known.get(name) !== value),
  );
}

/** Reads the settings; one that makes no sense is left for the file's value, and said. */
export async function readSettings(
  client: Client,
  entry: Entry,
  log: Log,
): Promise<ManagerSettings> {
  const made = await settingsMade(client, [...numeric, idleAlias, "pg_task.reset"]);
  const file = entry.parameters;
  const refuse = refuseTo(log);
  const number = (name: (typeof numeric)[number], alias?: string): number => {
    const asNamed = alias === undefined || made.has(name) ? name : alias;
    const text = made.get(asNamed);
    if (text === undefined) return file[name];
    const value = settingNumber(name, text);
    if (value !== null) return value;
    refuse(asNamed, text, file[name]);
    return file[name];
  };
  const interval = async (name: "pg_task.reset"): Promise<number> => {
    const text = made.get(name);
    const asMade = text === undefined ? null : await millisecondsIfAny(client, text);
    if (asMade !== null && asMade > 0) return asMade;
    if (text !== undefined) refuse(name, text, file[name]);
    return await milliseconds(client, file[name]);
  };
  const { sleep, reset, run } = entry.fixed;
  return {
    sleepMs: sleep ?? number("pg_task.sleep"),
    resetMs:
      reset === undefined ? await interval("pg_task.reset") : await milliseconds(client, reset),
    idle: number("pg_task.idle", idleAlias),
    limit: number("pg_task.limit"),
    fetch: number("pg_task.fetch"),
    run: run ?? number("pg_task.run"),
    outputLimit: number("pg_task.output"),
    crash: number("pg_task.crash"),
    closeMs: number("pg_work.close"),
    batch: number("pg_work.fetch"),
    restartMs: number("pg_work.restart") * 1000,
  };
}

/** Null when the server does not take the text for an interval. */
async function millisecondsIfAny(client: Client, text: string): Promise<number | null> {
  try {
    return await milliseconds(client, text);
  } catch (error) {
    if (sqlState(error)?.startsWith("22") !== true) throw error;
    return null;
  }
}

async function milliseconds(client: Client, interval: string): Promise<number> {
  const { rows } = await client.query<{ ms: number }>(
    "SELECT (extract(epoch FROM $1::interval) * 1000)::float8 AS ms",
    [interval],
  );
  return rows[0]?.ms ?? 0;
}
