import type { ConnectionTarget } from "./target/target.js";
import { pooledError } from "./connectionErrors.js";
import { literal } from "./quoting.js";

/** Settings in the startup packet. They override those of role and database, and RESET ALL does not remove them. */
export type StartupSettings = Readonly<Record<string, string | number>>;

/** TCP keepalive: how soon a server probes a silent client, in s, and how many probes may remain unanswered. */
const keepAliveSettings = {
  tcp_keepalives_idle: 5,
  tcp_keepalives_interval: 2,
  tcp_keepalives_count: 3,
};

/**
 * With these settings, a server ends a backend about ten seconds after the connection to its client has been cut.
 * `tcp_user_timeout`, in ms, applies while the server is sending, also if the client is alive but does not read.
 */
export const lostClientSettings = { ...keepAliveSettings, tcp_user_timeout: 10_000 };

/**
 * For sessions that run tasks: a client that does not read a large output for a while must not lose them. If the
 * connection is cut while the server is sending, pg-task notices it (`maxSendingSilenceMs`).
 */
export const sessionClientSettings = { ...keepAliveSettings, tcp_user_timeout: 0 };

/** How often, in ms, a server looks during a statement for its client: from PostgreSQL 14 on, on some platforms. */
export const connectionCheckSettings = { client_connection_check_interval: 200 };

/**
 * Settings that affect how statements are parsed, results are formatted, and how long statements can take, for pg-task's
 * own statements. Settings that only a superuser can change cannot be listed here.
 *
 * With any other `search_path`, functions of a role that may create in one of its schemas would run with the privileges
 * of the connection: `unnest(text[])` in `public` is preferred to `unnest(anyarray)` in `pg_catalog`.
 */
export const neutralSettings: StartupSettings = {
  array_nulls: "on",
  bytea_output: "hex",
  client_encoding: "UTF8",
  DateStyle: "ISO",
  default_transaction_deferrable: "off",
  default_transaction_isolation: "read committed",
  default_transaction_read_only: "off",
  exit_on_error: "off",
  extra_float_digits: 1,
  idle_in_transaction_session_timeout: 0,
  IntervalStyle: "postgres",
  lock_timeout: 0,
  "plpgsql.extra_errors": "none",
  quote_all_identifiers: "off",
  search_path: "pg_catalog, pg_temp",
  standard_conforming_strings: "on",
  statement_timeout: 0,
  transform_null_equals: "off",
  xmlbinary: "base64",
  xmloption: "content",
  ...keepAliveSettings,
};

/**
 * Older servers would refuse a connection whose startup packet contains these settings. They are set after connecting.
 */
const newerSettings = {
  idle_session_timeout: "0",
  restrict_nonsystem_relation_kind: "",
  transaction_timeout: "0",
};

const newerValues = Object.entries(newerSettings)
  .map(([name, value]) => `('${name}', '${value}')`)
  .join(", ");

/**
 * Returns the statements that apply settings until the end of the transaction, except those that the server does not
 * have and those that belong to the pooler's own connection instead of a transaction.
 */
export function transactionSettingsSql(settings: StartupSettings): string {
  const all: StartupSettings = { ...settings, ...newerSettings };
  const values = Object.entries(all)
    .filter(([name]) => name !== "client_encoding" && !name.startsWith("tcp_"))
    .map(([name, value]) => `('${name}', ${literal(String(value))})`);
  return (
    `SET LOCAL statement_timeout = 0; SET LOCAL search_path = ${neutralSettings["search_path"]}; ` +
    "SELECT pg_catalog.set_config(s.name, v.value, true) FROM (VALUES " +
    `${values.join(", ")}) AS v(name, value) JOIN pg_catalog.pg_settings AS s ON s.name OPERATOR(pg_catalog.=) v.name`
  );
}

/** Its value shows that the connection really received the settings of its startup packet. */
const markSetting = "pgtask.connection";

export interface Startup {
  readonly options: string;
  readonly mark: string;
}

export function buildStartup(settings: StartupSettings): Startup {
  // The mark must be unique but need not be secret, so Math.random is enough. node:crypto is slow to load.
  const mark = Math.random().toString(36).slice(2);
  const marked: StartupSettings = { ...settings, [markSetting]: mark };
  const options = Object.entries(marked)
    // Whitespace and backslashes in a value are escaped with a backslash.
    .map(([name, value]) => `-c ${name}=${String(value).replace(/[\\\s]/g, "\\$&")}`)
    .join(" ");
  return { options, mark };
}

export const probeSql = `SELECT pg_catalog.pg_backend_pid() AS pid, pg_catalog.current_setting('${markSetting}', true) AS mark`;

/**
 * Also reads whether the server is a standby and the session read-only, and sets the newer settings, but not behind a
 * pooler, whose sessions others use afterwards.
 */
export const neutralProbeSql = ({ mark }: Startup): string => `${probeSql}, pg_catalog.pg_is_in_recovery() AS standby,
  pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'on' AS "readOnly", (
  SELECT pg_catalog.count(pg_catalog.set_config(v.name, v.value, false)) FROM (VALUES ${newerValues}) AS v(name, value)
  WHERE pg_catalog.current_setting(v.name, true) IS NOT NULL AND pg_catalog.current_setting('${markSetting}', true) OPERATOR(pg_catalog.=) '${mark}') AS later`;

/**
 * Lets a session of an SQL_ASCII database receive text as its bytes are. Such a database does not check its text, and
 * the server would refuse to send what is not valid UTF-8. The driver replaces invalid bytes with U+FFFD.
 */
const anyTextColumn = `CASE WHEN pg_catalog.current_setting('server_encoding') OPERATOR(pg_catalog.=) 'SQL_ASCII'
  THEN pg_catalog.set_config('client_encoding', 'SQL_ASCII', false) END AS encoding`;

export const readingProbeSql = (startup: Startup): string => `${neutralProbeSql(startup)}, ${anyTextColumn}`;

export const acceptAnyTextSql = `SELECT ${anyTextColumn}`;

/**
 * Refuses a connection through a pooler, whose backends outlive their clients: a live backend would not prove that a
 * task runs, and a held lock not that its holder is connected. Some poolers announce another backend than the one that
 * answers, others hand out one that was started with the settings of another client.
 *
 * @param announced the pid in BackendKeyData; null if none was sent, as with some poolers
 * @throws PgTaskError CONNECTION_POOLED
 */
export function expectNoPooler(
  target: ConnectionTarget,
  announced: number | null,
  answer: { readonly pid: number | undefined; readonly mark: string | null | undefined },
  { mark }: Startup,
): void {
  if (answer.pid !== announced) {
    const who = `announced process ${announced ?? "none"}, was answered by ${answer.pid}`;
    throw pooledError(target, who);
  }
  if (answer.mark !== mark) throw pooledError(target, "did not get the settings it asked for");
}
