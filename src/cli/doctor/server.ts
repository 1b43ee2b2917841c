import { queryOne, queryValue } from "../../tasks/queryOne.js";
import type { Configuration } from "../../shared/config/types.js";
import type { Client } from "../../shared/postgres/client.js";
import { minServerVersion, reservedConnections } from "../../shared/postgres/serverLimits.js";
import {
  readCluster,
  readConnections,
  readOtherLeaders,
  readNotificationQueue,
} from "../../tasks/queries/clusterProcesses.js";
import { countSessions, entriesOnServer, type EntryLocation } from "../../tasks/queries/executorSessions.js";
import { describeOtherEntries, hashEntries, readPublishedEntries } from "../../supervisor/publishedEntries.js";
import { fail, ok, warn, type Finding } from "../inspection.js";
import { warnForeignHolder } from "./operation.js";

/** With such a difference in ms, it is hard to match log lines to rows. */
const clockWarnMs = 2000;

export async function checkServer(client: Client, { parameters, entries, control }: Configuration): Promise<Finding[]> {
  return [
    await checkVersion(client),
    directConnection,
    await checkPrimary(client),
    await checkClock(client),
    await checkNotifications(client),
    await checkConnections(client, parameters["pg_conf.max"], entriesOnServer(control, entries)),
    await checkLeader(client, parameters["pg_conf.name"], { control, entries }),
    ...(await checkServerSettings(client)),
  ];
}

async function checkVersion(client: Client): Promise<Finding> {
  const { number, text } = await queryOne<{ number: number; text: string }>(
    client,
    `SELECT current_setting('server_version_num')::integer AS number, current_setting('server_version') AS text`,
  );
  if (number >= minServerVersion) return ok("version", `PostgreSQL ${text}`);
  return fail("version", `PostgreSQL ${text}`, "use PostgreSQL 12 or later");
}

/** pg-task refuses to connect through a pooler, so that this holds for every connection that could be opened. */
export const directConnection: Finding = ok("connection", "direct, without a pooler");

async function checkPrimary(client: Client): Promise<Finding> {
  const standby = await queryValue<boolean>(client, "SELECT pg_is_in_recovery() AS standby");
  if (!standby) return ok("primary", "the server accepts writes");
  return fail("primary", "the server is a read-only standby", "configure the primary's address", 3);
}

async function checkClock(client: Client): Promise<Finding> {
  const sent = Date.now();
  const now = await queryValue<number>(client, "SELECT (date_part('epoch', clock_timestamp()) * 1000)::float8 AS now");
  // The clock of this machine is truncated to whole milliseconds, so 1 ms is added to get an upper bound.
  const received = Date.now() + 1;
  const offset = now < sent ? now - sent : Math.max(0, now - received);
  const text = `the server's clock is ${Math.round(Math.abs(offset))} ms ${offset < 0 ? "behind" : "ahead of"} this machine's`;
  if (Math.abs(offset) < clockWarnMs) return ok("clock", text);
  return warn(
    "clock",
    text,
    "tasks use the server's clock, log lines this machine's: synchronize both with the same time server",
  );
}

async function checkConnections(
  client: Client,
  maxSessions: number,
  entries: readonly EntryLocation[],
): Promise<Finding> {
  const { most: all, taken } = await readConnections(client);
  const { sessions } = await countSessions(client, entries);
  const available = all - reservedConnections - (taken - sessions);
  const ownText = sessions === 0 ? "" : `, ${sessions} of them by task sessions`;
  const text = `${taken} of ${all} in use${ownText}; pg-task may use up to ${maxSessions + entries.length + 1}, and leaves ${reservedConnections} to others`;
  if (available >= maxSessions) return ok("connections", text);
  return warn(
    "connections",
    text,
    available > 0
      ? `pg-task works with fewer sessions; raise max_connections, or lower pg_conf.max to ${available}`
      : "none is left for sessions: raise max_connections, or close unused connections",
  );
}

const queueWarn = 0.5;
const queueFail = 0.9;

/** Which warning the server writes to its log from half full on. It names one of the listeners that lag behind most. */
const logWarning = '"NOTIFY queue is …% full"';

async function checkNotifications(client: Client): Promise<Finding> {
  const { usage, oldest } = await readNotificationQueue(client);
  const text = `the server's queue of notifications is ${Math.round(usage * 100)} % full`;
  if (usage < queueWarn) return ok("notifications", text);
  const report = usage < queueFail ? warn : fail;
  const why = "a session that listens and stays in a transaction keeps it from being emptied";
  if (oldest === null) {
    const remedy = `end the transaction of the process that the server's log names (${logWarning})`;
    return report("notifications", `${text}: ${why}; none is visible to this role`, remedy);
  }
  return report(
    "notifications",
    `${text}: ${why}, probably ${oldest.description}`,
    `if the server's log (${logWarning}) names the same process, end its transaction, or SELECT pg_terminate_backend(${oldest.pid})`,
  );
}

async function checkLeader(
  client: Client,
  name: string,
  { control, entries }: Pick<Configuration, "control" | "entries">,
): Promise<Finding> {
  const { leader: found, foreignHolder, standbys } = await readCluster(client, name);
  if (foreignHolder !== null) return warnForeignHolder("leader", foreignHolder);
  if (found === null) return await warnNoLeader(client, name, control.database);
  const text = `server process ${found.pid}, standbys: ${standbys.length}`;
  const { leader, all } = await readPublishedEntries(client, name);
  if (leader === null) return ok("leader", text);
  const here = describeOtherEntries(hashEntries(name, entries), leader, { entries, who: "this configuration" });
  if (here !== null) {
    return warn(
      "leader",
      `${text}; the leader has other entries than this configuration (${here}): nobody serves what the leader does not have`,
      "give both processes the same entries, or set another pg_conf.name here, so that this configuration has its own leader",
    );
  }
  const others = standbys.flatMap(({ pid }) => {
    const differences = describeOtherEntries(all.get(pid) ?? leader, leader, { entries, who: "it" });
    return differences === null ? [] : [`the standby of server process ${pid} has other entries (${differences})`];
  });
  if (others.length === 0) return ok("leader", text);
  return warn(
    "leader",
    `${text}; ${others.join("; ")}`,
    "give all processes the same entries, or set another pg_conf.name for those that have others",
  );
}

const startRemedy = "run pg-task start";

/** If a manager serves one of the tables all the same, another process would compete with the one that runs. */
export const withRunningManager = (checks: readonly Finding[]): Finding[] =>
  checks.map((check) =>
    check.name === "leader" && check.level === "warn" && check.remedy === startRemedy
      ? warn(
          "leader",
          `${check.text}, but a manager serves a table of this configuration`,
          "see the log of the pg-task that runs: its control connection may have failed, or lead to another control database or pg_conf.name than here",
        )
      : check,
  );

async function warnNoLeader(client: Client, name: string, database: string): Promise<Finding> {
  const others = await readOtherLeaders(client, name);
  const other = others.find((each) => !each.sameName && each.database === database);
  const text = `cluster ${name} has no leader`;
  if (other === undefined) return warn("leader", text, startRemedy);
  return warn(
    "leader",
    `${text}; server process ${other.pid} leads a cluster with another name`,
    "set pg_conf.name to that name, or run pg-task start",
  );
}

const harmfulSettings = [
  {
    name: "fsync",
    harmful: /^off$/,
    why: "a crash of the machine may lose committed tasks, or the whole database",
    remedy: "turn it on if data matters",
  },
  {
    name: "full_page_writes",
    harmful: /^off$/,
    why: "a crash of the machine may damage the table",
    remedy: "turn it on",
  },
  {
    name: "autovacuum",
    harmful: /^off$/,
    why: "indexes grow with every task, and claims get slower",
    remedy: "turn it on, or VACUUM the task table often",
  },
  { name: "track_activities", harmful: /^off$/, why: "session activity is not visible", remedy: "turn it on" },
  {
    name: "shared_preload_libraries",
    harmful: /(^|[,\s/])pg_task\b/,
    why: "the pg_task extension runs too: both would run the tasks of a shared table",
    remedy: "remove pg_task from it and restart the server",
  },
];

async function checkServerSettings(client: Client): Promise<Finding[]> {
  const { rows } = await client.query<{ name: string; value: string }>(
    "SELECT name, setting AS value FROM pg_catalog.pg_settings WHERE name = ANY ($1::text[])",
    [harmfulSettings.map(({ name }) => name)],
  );
  const values = new Map(rows.map(({ name, value }) => [name, value]));
  const found = harmfulSettings.flatMap(({ name, harmful, why, remedy }) => {
    const value = values.get(name) ?? "";
    return harmful.test(value) ? [warn("settings", `${name} is ${value}: ${why}`, remedy)] : [];
  });
  const checks = found.length > 0 ? found : [ok("settings", "no harmful server settings")];
  const hidden = harmfulSettings.map(({ name }) => name).filter((name) => !values.has(name));
  if (hidden.length === 0) return checks;
  const text = `not checked, visible only to members of pg_read_all_settings: ${hidden.join(", ")}`;
  return [...checks, ok("settings", text)];
}
