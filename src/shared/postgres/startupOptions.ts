import type { ConnectionTarget } from "../config/types.js";
import { pooled } from "./connectionErrors.js";

/** Settings given in the startup packet: RESET ALL and a role's or database's settings leave them be. */
export type StartupSettings = Readonly<Record<string, string | number>>;

/**
 * What changes how statements are read, how their answers are written, and how long they may take: for
 * connections whose statements are all our own, whatever the role's or the database's settings are. What
 * only a superuser may set cannot be among these.
 */
export const plainSettings: StartupSettings = {
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
  standard_conforming_strings: "on",
  statement_timeout: 0,
  transform_null_equals: "off",
  xmlbinary: "base64",
  xmloption: "content",
};

/** The same of settings that not every server knows, which would refuse the whole connection over them. */
const laterSettings = {
  idle_session_timeout: "0",
  restrict_nonsystem_relation_kind: "",
  transaction_timeout: "0",
};

const laterValues = Object.entries(laterSettings)
  .map(([name, value]) => `('${name}', '${value}')`)
  .join(", ");

/** A setting of our own, by which a connection is known to be the one that was asked for. */
const markSetting = "pgtask.connection";

/** The startup packet's `options`, and what a server that got them answers. */
export interface Startup {
  readonly options: string;
  readonly mark: string;
}

/** Blanks and backslashes in a value are escaped with a backslash. */
export function startupWith(settings: StartupSettings): Startup {
  // No secret, only another one than anybody else's: cryptography would have to be loaded first.
  const mark = Math.random().toString(36).slice(2);
  const given: StartupSettings = { ...settings, [markSetting]: mark };
  const options = Object.entries(given)
    .map(([name, value]) => `-c ${name}=${String(value).replace(/[\\\s]/g, "\\$&")}`)
    .join(" ");
  return { options, mark };
}

/** Asks who answers, and by which settings: columns pid and mark. */
export const whoAnswersSql = `SELECT pg_catalog.pg_backend_pid() AS pid, pg_catalog.current_setting('${markSetting}', true) AS mark`;

/** The same, and sets those of the later settings that the server knows. */
export const whoAnswersPlainlySql = `${whoAnswersSql}, (
  SELECT pg_catalog.count(pg_catalog.set_config(s.name, v.value, false))
  FROM (VALUES ${laterValues}) AS v(name, value) JOIN pg_catalog.pg_settings AS s ON s.name = v.name) AS later`;

/**
 * A pooler's server process outlives us, and is somebody else's before and after: no lock of ours
 * and no death could be seen by it. Some announce another process than the one that answers (all
 * modes of PgBouncer), others hand on one that was started by another connection's settings.
 *
 * @param announced the process of the key data; null when there were none, as with some poolers
 * @param answer what `whoAnswersSql` was answered
 * @throws PgTaskError CONNECTION_POOLED
 */
export function expectServer(
  target: ConnectionTarget,
  announced: number | null,
  answer: { readonly pid: number | undefined; readonly mark: string | null | undefined },
  { mark }: Startup,
): void {
  if (answer.pid !== announced) {
    const who = `announced process ${announced ?? "none"}, was answered by ${answer.pid}`;
    throw pooled(target, who);
  }
  if (answer.mark !== mark) throw pooled(target, "did not get the settings it asked for");
}
