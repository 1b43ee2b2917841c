import { isDeepStrictEqual } from "node:util";
import type { Entry } from "../../shared/config/types.js";
import {
  logInvalidSettings,
  longCharacterSettings,
  parseSettingNumber,
  readServerSettings,
} from "../../shared/config/serverSettings.js";
import { characterParameters } from "../../shared/config/parameters.js";
import { parseSqlstates } from "../../shared/parseSqlstates.js";
import { sqlState, type Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";

export interface RetryPolicy {
  /** SQLSTATEs and classes, with `!` those that are not retried. Rows can have a list of their own. */
  readonly sqlstates: readonly string[];
  /** Longest pause before a retry, in ms. */
  readonly ceilingMs: number;
}

/** What is set on the server (for the role, the database or all databases) takes precedence over the file. */
export interface ManagerSettings extends RetryPolicy {
  /** Interval between checks of the table while the manager is awake. */
  readonly sleepMs: number;
  /** Interval between scans of the table for orphans. */
  readonly resetMs: number;
  /** How many checks in a row must find nothing before deep sleep begins. */
  readonly idle: number;
  /** Maximum number of tasks claimed in one cycle (`limit`) and by one statement (`fetch`). */
  readonly limit: number;
  readonly fetch: number;
  readonly run: number;
  /** Maximum size of a task's output, in bytes. */
  readonly outputLimit: number;
  /** After which time a run is logged while it runs, in ms. 0 if none is. */
  readonly slowMs: number;
  /** How many times a task's run may end its session before the task becomes `FAIL`. */
  readonly crash: number;
  /** How long an executor thread can take to acknowledge a payload, in ms. */
  readonly closeMs: number;
  /** Maximum number of rows that one statement expires, rescues or prunes. */
  readonly batch: number;
  /** Maximum delay before sessions are opened again after one has failed to open, in ms. */
  readonly restartMs: number;
}

const numericSettings = [
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

const otherSettings = ["pg_task.reset", "pg_task.ceiling", "pg_task.slow", "pg_task.sqlstate"];

/** Used only if `pg_task.idle` itself is not set. */
const idleAlias = "pg_work.idle";

export function changedSettings(before: ManagerSettings, now: ManagerSettings): Partial<ManagerSettings> {
  const known = new Map<string, unknown>(Object.entries(before));
  return Object.fromEntries(Object.entries(now).filter(([name, value]) => !isDeepStrictEqual(known.get(name), value)));
}

/** An invalid value on the server is logged, and that of the file is used. */
export async function readSettings(client: Client, entry: Entry, log: Log): Promise<ManagerSettings> {
  const onServer = await readServerSettings(client, [
    ...numericSettings,
    idleAlias,
    ...otherSettings,
    ...characterParameters,
  ]);
  for (const [setting, value] of longCharacterSettings(onServer)) {
    log.warn(
      { setting, value, used: value.charAt(0) },
      "server setting longer than one character, the rest is cut off",
    );
  }
  const file = entry.parameters;
  const reportInvalid = logInvalidSettings(log);
  const number = (name: (typeof numericSettings)[number], alias?: string): number => {
    const source = alias === undefined || onServer.has(name) ? name : alias;
    const text = onServer.get(source);
    if (text === undefined) return file[name];
    const value = parseSettingNumber(name, text);
    if (value !== null) return value;
    reportInvalid(source, text, file[name]);
    return file[name];
  };
  const interval = async (
    name: "pg_task.reset" | "pg_task.ceiling" | "pg_task.slow",
    mayBeZero = false,
  ): Promise<number> => {
    const text = onServer.get(name);
    const ms = text === undefined ? null : await parseInterval(client, text);
    if (ms !== null && (ms > 0 || (mayBeZero && ms === 0))) return ms;
    if (text !== undefined) reportInvalid(name, text, file[name]);
    return await milliseconds(client, file[name]);
  };
  const sqlstates = (): readonly string[] => {
    const name = "pg_task.sqlstate";
    const text = onServer.get(name);
    const list = text === undefined ? null : parseSqlstates(text);
    if (text !== undefined && list === null) reportInvalid(name, text, file[name]);
    return list ?? parseSqlstates(file[name]) ?? [];
  };
  const { sleep, reset, run } = entry.fixed;
  return {
    sleepMs: sleep ?? number("pg_task.sleep"),
    resetMs: reset === undefined ? await interval("pg_task.reset") : await milliseconds(client, reset),
    idle: number("pg_task.idle", idleAlias),
    limit: number("pg_task.limit"),
    fetch: number("pg_task.fetch"),
    run: run ?? number("pg_task.run"),
    sqlstates: sqlstates(),
    ceilingMs: await interval("pg_task.ceiling"),
    slowMs: await interval("pg_task.slow", true),
    outputLimit: number("pg_task.output"),
    crash: number("pg_task.crash"),
    closeMs: number("pg_work.close"),
    batch: number("pg_work.fetch"),
    restartMs: number("pg_work.restart") * 1000,
  };
}

/** Null if the text is not an interval. */
async function parseInterval(client: Client, text: string): Promise<number | null> {
  try {
    return await milliseconds(client, text);
  } catch (error) {
    if (sqlState(error)?.startsWith("22") !== true) throw error;
    return null;
  }
}

/** What intervals are in ms, of which managers read the same ones each time. */
const knownIntervals = new Map<string, number>();

async function milliseconds(client: Client, interval: string): Promise<number> {
  const known = knownIntervals.get(interval);
  if (known !== undefined) return known;
  const { rows } = await client.query<{ ms: number }>(
    "SELECT (extract(epoch FROM $1::interval) * 1000)::float8 AS ms",
    [interval],
  );
  const ms = rows[0]?.ms ?? 0;
  knownIntervals.set(interval, ms);
  return ms;
}
