import { PgTaskError } from "../shared/errors.js";
import { holderSetting } from "./data/lockFile.js";
import { loopback } from "./port.js";

export type ServerSettings = Readonly<Record<string, string | number>>;

/** What the launcher itself depends on. */
function ownSettings(port: number): ServerSettings {
  return {
    port,
    listen_addresses: loopback,
    // A socket's path may have no more than 107 bytes, so it could not be in every data folder.
    unix_socket_directories: "",
    log_destination: "stderr",
    logging_collector: "off",
    log_line_prefix: "[%p] ",
    [holderSetting]: process.pid,
  };
}

/** @throws PgTaskError CONFIG_CONFLICT for a setting that is the launcher's own. */
export function requireFreeSettings(settings: ServerSettings): void {
  const own = ownSettings(0);
  const taken = Object.keys(settings).find((name) => name.toLowerCase() in own);
  if (taken === undefined) return;
  throw new PgTaskError(
    "CONFIG_CONFLICT",
    `${taken} of the embedded server is not to be set: pg-task itself sets ${Object.keys(own).join(", ")}`,
  );
}

/** Its log goes into that of pg-task, which is to have no task's SQL in it; an error of a task is in its row. */
const unlessSet: ServerSettings = { log_min_error_statement: "panic" };

export function settingArguments(port: number, settings: ServerSettings): string[] {
  const all = { ...unlessSet, ...settings, ...ownSettings(port) };
  return Object.entries(all).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
}
