import type { Run } from "../../shared/ipc/messages.js";
import { literal } from "../../shared/postgres/quoting.js";

/** The largest value of the server's statement_timeout, in ms. */
const maxStatementTimeoutMs = 2 ** 31 - 1;

/** The server's clock, in UTC with microseconds, whatever DateStyle and TimeZone are. */
const nowSql =
  "pg_catalog.to_char(pg_catalog.timezone('UTC', pg_catalog.clock_timestamp()), " +
  `'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;

/** The table whose tasks a session runs. */
export interface TaskTableName {
  readonly schema: string;
  readonly table: string;
}

/** What the server's own timeout is set to. */
export function statementTimeoutMs(timeoutMs: number): number {
  return Math.min(Math.ceil(timeoutMs), maxStatementTimeoutMs);
}

/** The session's own statement_timeout, in ms. */
const ownTimeoutSql =
  "(EXTRACT(epoch FROM pg_catalog.current_setting('statement_timeout')::pg_catalog.interval) " +
  "OPERATOR(pg_catalog.*) 1000)::pg_catalog.int8";

/** Reads the session's own statement_timeout, in ms, and puts it out of the way until the next reset. */
export const ownTimeoutPutAwaySql = `SELECT ${ownTimeoutSql}, pg_catalog.set_config('statement_timeout', '0', false)`;

/** The smaller one of a task's timeout and its session's own, in ms, of which 0 is none. */
export function smallerTimeoutMs(timeoutMs: number, ownMs: number): number {
  return ownMs > 0 && ownMs < timeoutMs ? ownMs : timeoutMs;
}

/** What a session is called when it runs nothing; the server cuts it at its limit. */
export function applicationName({ schema, table }: TaskTableName): string {
  return `pg_task ${schema} ${table}`;
}

/** What tells a session what it runs; made for one session, whose runs are mostly of one group. */
export class SettingsText {
  readonly #table: TaskTableName & { readonly name?: string };
  #group: string | null = null;
  #beginning = "";

  constructor(table: TaskTableName & { readonly name?: string }) {
    this.#table = table;
  }

  /** Its one value is the start. */
  sql({ id, group, timeoutMs }: Pick<Run, "id" | "group" | "timeoutMs">): string {
    if (this.#group !== group) {
      this.#group = group;
      this.#beginning = beginning(this.#table, group);
    }
    const settings = `${this.#beginning} AND ${setConfig("pg_task.id", id)}`;
    if (timeoutMs === 0) return settings;
    const limitMs = statementTimeoutMs(timeoutMs);
    const smaller =
      `CASE WHEN ${ownTimeoutSql} OPERATOR(pg_catalog.=) 0 THEN ${limitMs} ` +
      `ELSE LEAST(${limitMs}, ${ownTimeoutSql}) END`;
    return `${settings} AND pg_catalog.set_config('statement_timeout', (${smaller})::pg_catalog.text, false) IS NOT NULL`;
  }
}

function beginning(table: TaskTableName & { readonly name?: string }, group: string): string {
  const settings = [
    setConfig("application_name", table.name ?? `${applicationName(table)} ${group}`),
    setConfig("pg_task.schema", table.schema),
    setConfig("pg_task.table", table.table),
    setConfig("pg_task.group", group),
  ];
  return `SELECT ${nowSql} WHERE ${settings.join(" AND ")}`;
}

/** Reads the stop, its one value, and ends a timeout, so that it spares the reset. */
export function stopSql(run: Pick<Run, "timeoutMs" | "save">): string {
  const keepTimeout = run.save && run.timeoutMs === 0;
  return keepTimeout
    ? `SELECT ${nowSql}`
    : `SELECT ${nowSql} WHERE ${setConfig("statement_timeout", "0")}`;
}

/**
 * Enters the run into its ledger when its transaction has written anything; the one row says null when
 * it has not, else whether the task's row still says that it runs. What the task has set is put out
 * of the way: its role may have no right to the ledger, its limits may be over.
 */
export function finishSql(run: Pick<Run, "id" | "take" | "ledger">, place: FinishPlace): string {
  const { finish, owner } = place;
  const call = `${finish}(${run.id}::pg_catalog.int8, ${run.take}::pg_catalog.int8, ${literal(owner)}::pg_catalog.text, ${run.ledger}::pg_catalog.int4)`;
  return (
    "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; " +
    "SET LOCAL SESSION AUTHORIZATION DEFAULT; SET LOCAL role TO DEFAULT; " +
    `SELECT ${call}`
  );
}

/** What `finishSql` needs to know of its session. */
export interface FinishPlace {
  /** The function, quoted, with its schema. */
  readonly finish: string;
  /** Whose run it is, as stored in the column `owner`. */
  readonly owner: string;
}

/** Makes the text of `finishSql` arrive as it is, whatever encoding the task has set; null when it does anyway. */
export function finishEncodingSql({ finish }: FinishPlace): string | null {
  return /^[\x20-\x7e]*$/.test(finish) ? null : "SET LOCAL client_encoding = 'UTF8'";
}

/**
 * The queries that make a session as new, each a message of its own. When the task keeps its state
 * for the next, only what would bind that one or make it unreadable is given up.
 */
export function resetSql(run: Pick<Run, "timeoutMs" | "save">): string[] {
  if (!run.save) return ["DISCARD ALL"];
  const timeout = run.timeoutMs > 0 ? ["RESET statement_timeout"] : [];
  return ["RESET client_encoding", ...timeout];
}

/** A condition that is true, and sets something. */
function setConfig(name: string, value: string): string {
  // A backslash makes it E'…', which means the same whatever standard_conforming_strings is.
  return `pg_catalog.set_config('${name}', ${literal(value)}, false) IS NOT NULL`;
}
