import type { ConnectionTarget } from "./config/types.js";
import { pooled } from "./connectionFailure.js";

/** Settings given in the startup packet: RESET ALL and a role's or database's settings leave them be. */
export type StartupSettings = Readonly<Record<string, string | number>>;

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
