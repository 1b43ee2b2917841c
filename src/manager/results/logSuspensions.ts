import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";

/** SQLSTATE of the message in which the function `suspended` of the migration tells what has been paused. */
const suspended = "PGT02";

/** Logs what the server pauses in statements of this connection, because too many runs in a row have failed. */
export function logSuspensions(client: Client, log: Log): void {
  client.on("notice", ({ code, detail }) => {
    if (code === suspended && detail !== undefined) log.warn(JSON.parse(detail), "suspended after failures in a row");
  });
}
