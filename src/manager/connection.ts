import type { Entry } from "../shared/config/types.js";
import { connectClient, type Client } from "../shared/postgres/client.js";
import { lockClasses } from "../shared/postgres/advisoryLocks.js";
import { identifier } from "../shared/postgres/quoting.js";
import type { StartupSettings } from "../shared/postgres/startupOptions.js";
import { lockWaitMs } from "./sql/lockWait.js";
import type { TaskTable } from "./schema/taskTable.js";

/**
 * Beside what every connection of ours has: times without a zone are in the database's own. The
 * planner is kept from sequential scans and hash joins, since its statements name few rows of a
 * table whose statistics may be those of yesterday's empty one.
 */
const pinned: StartupSettings = {
  "pgtask.manager": "on",
  search_path: "pg_catalog",
  lock_timeout: lockWaitMs.usual,
  row_security: "off",
  enable_seqscan: "off",
  enable_bitmapscan: "off",
  enable_hashjoin: "off",
  enable_mergejoin: "off",
  enable_indexscan: "on",
  enable_nestloop: "on",
  jit: "off",
  plan_cache_mode: "force_generic_plan",
  tcp_keepalives_idle: 5,
  tcp_keepalives_interval: 2,
  tcp_keepalives_count: 3,
  tcp_user_timeout: "10s",
};

/**
 * Opens the manager's connection: statements sent together share one round trip.
 *
 * @param name of another one that has the same settings.
 */
export async function connectManager(
  entry: Entry,
  signal?: AbortSignal,
  name?: string,
): Promise<Client> {
  const sleepMs = entry.fixed.sleep ?? entry.parameters["pg_task.sleep"];
  const client = await connectClient(entry.target, {
    applicationName: name ?? applicationName(entry, sleepMs),
    settings: pinned,
    pipeline: true,
    ...(signal === undefined ? {} : { signal }),
  });
  // A later server's setting: an older one would refuse the whole connection over it.
  await client.query(
    `SELECT set_config(v.name, v.value, false)
     FROM (VALUES ('client_connection_check_interval', '200'))
       AS v(name, value) JOIN pg_settings AS s ON s.name = v.name`,
  );
  return client;
}

/** The name has the pause in it, which the server's settings may have changed. */
export async function setApplicationName(
  client: Client,
  entry: Entry,
  sleepMs: number,
): Promise<void> {
  await client.query("SELECT set_config('application_name', $1, false)", [
    applicationName(entry, sleepMs),
  ]);
}

function applicationName(entry: Entry, sleepMs: number): string {
  return `pg_work ${entry.schema} ${entry.table} ${sleepMs}`;
}

/** Whether the connection's user is superuser. */
export async function isSuperuser(client: Client): Promise<boolean> {
  const { rows } = await client.query<{ superuser: boolean }>(
    "SELECT rolsuper AS superuser FROM pg_roles WHERE rolname = current_user",
  );
  return rows[0]?.superuser === true;
}

/** Takes the table's lock if nobody has it; it goes with the connection. */
export async function tryLock(client: Client, tableOid: number): Promise<boolean> {
  const { rows } = await client.query<{ locked: boolean }>(
    "SELECT pg_try_advisory_lock($1, $2) AS locked",
    // An oid is unsigned, a lock's key is not.
    [lockClasses.manager, tableOid | 0],
  );
  return rows[0]?.locked === true;
}

/** Gives the table's lock up. */
export async function unlock(client: Client, tableOid: number): Promise<void> {
  await client.query("SELECT pg_advisory_unlock($1, $2)", [lockClasses.manager, tableOid | 0]);
}

/** Hears the wake-ups of the table, and of its pauses, as notifications. */
export async function listen(client: Client, table: TaskTable): Promise<void> {
  const { rows } = await client.query<{ channel: string }>(
    "SELECT concat('pg_task_', to_regclass(name)::oid) AS channel FROM unnest($1::text[]) AS n(name) WHERE to_regclass(name) IS NOT NULL",
    [[table.qualified, table.pauses]],
  );
  for (const { channel } of rows) await client.query(`LISTEN ${identifier(channel)}`);
}
