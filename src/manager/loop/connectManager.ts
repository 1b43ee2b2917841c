import type { Entry } from "../../shared/config/types.js";
import { managerName } from "../../shared/postgres/applicationNames.js";
import { serverStartSql } from "../../shared/postgres/backendIdentity.js";
import { connectClient, type Client } from "../../shared/postgres/client.js";
import {
  connectionCheckSettings,
  lostClientSettings,
  type StartupSettings,
} from "../../shared/postgres/startupOptions.js";
import { lockTimeoutMs } from "../sql/lockTimeout.js";

/**
 * Settings of the manager's connections, in addition to the settings of every connection. Sequential scans and hash
 * joins are disabled because the statements read few rows, while the planner's statistics may still describe the table
 * as empty. The time zone is not set, because times without a zone are meant in the database's own time zone.
 */
const managerSettings: StartupSettings = {
  "pgtask.manager": "on",
  lock_timeout: lockTimeoutMs.normal,
  row_security: "off",
  enable_seqscan: "off",
  enable_bitmapscan: "off",
  enable_hashjoin: "off",
  enable_mergejoin: "off",
  enable_indexscan: "on",
  enable_nestloop: "on",
  jit: "off",
  plan_cache_mode: "force_generic_plan",
  ...lostClientSettings,
};

/** As far as the file tells. */
const sleepMsOf = ({ fixed, parameters }: Entry): number => fixed.sleep ?? parameters["pg_task.sleep"];

/** @param name application name; omitted for the manager's own connection */
export async function connectManager(entry: Entry, signal?: AbortSignal, name?: string): Promise<Client> {
  const client = await connectClient(entry.target, {
    applicationName: name ?? managerName(entry, sleepMsOf(entry)),
    settings: managerSettings,
    pipeline: true,
    writable: true,
    ...(signal === undefined ? {} : { signal }),
  });
  // These settings are not sent at startup, because a server that lacks one of them would refuse the connection.
  await client.query(
    `SELECT set_config(v.name, v.value, false)
     FROM json_each_text($1) AS v(name, value) WHERE current_setting(v.name, true) IS NOT NULL`,
    [JSON.stringify(connectionCheckSettings)],
  );
  return client;
}

/** The application name contains the value of `sleep`. */
export async function setApplicationName(client: Client, entry: Entry, sleepMs: number): Promise<void> {
  await client.query("SELECT set_config('application_name', $1, false)", [managerName(entry, sleepMs)]);
}

/** A new connection has the name according to the file. */
export async function correctApplicationName(client: Client, entry: Entry, sleepMs: number): Promise<void> {
  if (sleepMs !== sleepMsOf(entry)) await setApplicationName(client, entry, sleepMs);
}

export async function readIdentity(client: Client): Promise<{ isSuperuser: boolean; serverStart: string | null }> {
  const { rows } = await client.query<{ superuser: boolean; started: string }>(
    `SELECT rolsuper AS superuser, ${serverStartSql} AS started FROM pg_roles WHERE rolname = current_user`,
  );
  return { isSuperuser: rows[0]?.superuser === true, serverStart: rows[0]?.started ?? null };
}
