import { PgTaskError } from "../shared/errors.js";
import { holderSetting } from "./data/lockFile.js";
import { loopback } from "./port.js";

export type ServerSettings = Readonly<Record<string, string | number>>;

function ownSettings(port: number): ServerSettings {
  return {
    port,
    listen_addresses: loopback,
    // No Unix socket is used. Its path is limited to 107 bytes, and the path of the data folder may be longer.
    unix_socket_directories: "",
    log_destination: "stderr",
    logging_collector: "off",
    log_line_prefix: "[%p] ",
    [holderSetting]: process.pid,
  };
}

/** @throws PgTaskError CONFIG_CONFLICT if `settings` contains one that pg-task sets itself */
export function requireFreeSettings(settings: ServerSettings): void {
  const own = ownSettings(0);
  const taken = Object.keys(settings).find((name) => name.toLowerCase() in own);
  if (taken === undefined) return;
  throw new PgTaskError(
    "CONFIG_CONFLICT",
    `${taken} of the embedded server cannot be set: pg-task itself sets ${Object.keys(own).join(", ")}`,
  );
}

/** The server's log becomes part of pg-task's log, which must not contain the SQL of tasks. */
const defaults: ServerSettings = { log_min_error_statement: "panic" };

export function settingArguments(port: number, settings: ServerSettings): string[] {
  const all = { ...defaults, ...settings, ...ownSettings(port) };
  return Object.entries(all).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
}
