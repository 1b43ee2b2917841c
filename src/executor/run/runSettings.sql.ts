import type { Run } from "../../shared/ipc/run.js";
import { busySessionName, type TaskTableName } from "../../shared/postgres/applicationNames.js";
import { maxInt } from "../../shared/postgres/serverLimits.js";
import { literal } from "../../shared/postgres/quoting.js";

/** Reads the server's clock, in UTC with microseconds, whatever DateStyle and TimeZone are. */
const nowSql = `pg_catalog.to_char(pg_catalog.timezone('UTC', pg_catalog.clock_timestamp()), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;

export function statementTimeoutMs(timeoutMs: number): number {
  return Math.min(Math.ceil(timeoutMs), maxInt);
}

const sessionTimeoutSql =
  "(EXTRACT(epoch FROM pg_catalog.current_setting('statement_timeout')::pg_catalog.interval) " +
  "OPERATOR(pg_catalog.*) 1000)::pg_catalog.int8";

/** Like the statement that shows the timeout, it reads no catalog, so that hardly any timeout is too short for it. */
export const clearSessionTimeoutSql = "SET statement_timeout = 0";
export const showSessionTimeoutSql = "SHOW statement_timeout";

const unitMs: Readonly<Record<string, number>> = { ms: 1, s: 1_000, min: 60_000, h: 3_600_000, d: 86_400_000 };

export function shownTimeoutMs(shown: string): number {
  const [, count = "0", unit = "ms"] = /^(\d+)(\w*)$/.exec(shown) ?? [];
  return Number(count) * (unitMs[unit] ?? 1);
}

export function effectiveTimeoutMs(timeoutMs: number, sessionMs: number): number {
  return sessionMs > 0 && sessionMs < timeoutMs ? sessionMs : timeoutMs;
}

/** Builds the SQL of a run's settings. A session mostly runs tasks of one group, so most of it is cached. */
export class SettingsSql {
  readonly #table: TaskTableName & { readonly name?: string | null };
  #group: string | null = null;
  #beginning = "";

  constructor(table: TaskTableName & { readonly name?: string | null }) {
    this.#table = table;
  }

  /** Its one value is the time of the start, by the server's clock. */
  sql({ id, args, results, group, timeoutMs }: Pick<Run, "id" | "args" | "results" | "group" | "timeoutMs">): string {
    if (this.#group !== group) {
      this.#group = group;
      this.#beginning = settingsPrefix(this.#table, group);
    }
    const values = args === null ? "" : ` AND ${setConfig("pg_task.args", args)}`;
    const outputs = results === null ? "" : ` AND ${setConfig("pg_task.results", results)}`;
    const settings = `${this.#beginning} AND ${setConfig("pg_task.id", id)}${values}${outputs}`;
    if (timeoutMs === 0) return settings;
    const limitMs = statementTimeoutMs(timeoutMs);
    const smaller =
      `CASE WHEN ${sessionTimeoutSql} OPERATOR(pg_catalog.=) 0 THEN ${limitMs} ` +
      `ELSE LEAST(${limitMs}, ${sessionTimeoutSql}) END`;
    return `${settings} AND pg_catalog.set_config('statement_timeout', (${smaller})::pg_catalog.text, false) IS NOT NULL`;
  }
}

function settingsPrefix(table: TaskTableName & { readonly name?: string | null }, group: string): string {
  const settings = [
    setConfig("application_name", table.name ?? busySessionName(table, group)),
    setConfig("pg_task.schema", table.schema),
    setConfig("pg_task.table", table.table),
    setConfig("pg_task.group", group),
  ];
  return `SELECT ${nowSql} WHERE ${settings.join(" AND ")}`;
}

/**
 * Returns a query whose one value is the time by the server's clock. It also disables the run's timeout, which could
 * interrupt the reset. With `save` and no timeout, the session's own one is kept.
 */
export function stopSql(run: Pick<Run, "timeoutMs" | "save">): string {
  const keepTimeout = run.save && run.timeoutMs === 0;
  return keepTimeout ? `SELECT ${nowSql}` : `SELECT ${nowSql} WHERE ${setConfig("statement_timeout", "0")}`;
}

/**
 * Returns the queries that reset a session, each a message of its own. With `save`, only what concerns the next run is
 * reset: the timeout, the args, the results, and client_encoding, which could garble its text.
 */
export function resetSql(run: Pick<Run, "timeoutMs" | "save" | "args" | "results">): string[] {
  if (!run.save) return ["DISCARD ALL"];
  const timeout = run.timeoutMs > 0 ? ["RESET statement_timeout"] : [];
  const args = run.args === null ? [] : ["RESET pg_task.args"];
  const results = run.results === null ? [] : ["RESET pg_task.results"];
  return ["RESET client_encoding", ...timeout, ...args, ...results];
}

function setConfig(name: string, value: string): string {
  // A value with a backslash becomes an E'…' literal, which has the same meaning with either value of
  // standard_conforming_strings.
  return `pg_catalog.set_config('${name}', ${literal(value)}, false) IS NOT NULL`;
}
