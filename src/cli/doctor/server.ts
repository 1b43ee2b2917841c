import type { Configuration } from "../../shared/config/types.js";
import type { Client } from "../../shared/postgres/client.js";
import {
  readCluster,
  readConnections,
  readOtherLeaders,
} from "../../tasks/queries/clusterProcesses.js";
import {
  countSessions,
  entriesOn,
  type PlacedEntry,
} from "../../tasks/queries/executorSessions.js";
import { fail, ok, warn, type Check } from "./check.js";

const oldest = 120_000;
/** A difference of the clocks above this confuses who reads logs and rows side by side, in ms. */
const clockWarnMs = 2000;
const leftToOthers = 10;

/** What is looked at on the control connection. */
export async function checkServer(
  client: Client,
  { parameters, entries, control }: Configuration,
): Promise<Check[]> {
  return [
    await version(client),
    direct,
    await standby(client),
    await clock(client),
    await room(client, parameters["pg_conf.max"], entriesOn(control, entries)),
    await leader(client, parameters["pg_conf.name"], control.database),
    ...(await serverSettings(client)),
  ];
}

async function version(client: Client): Promise<Check> {
  const { rows } = await client.query<{ number: number; text: string }>(
    `SELECT current_setting('server_version_num')::integer AS number, current_setting('server_version') AS text`,
  );
  const { number = 0, text = "" } = rows[0] ?? {};
  if (number >= oldest) return ok("version", `PostgreSQL ${text}`);
  return fail("version", `PostgreSQL ${text}`, "use PostgreSQL 12 or later");
}

/** Said of every connection that there is: behind a pooler none would have been opened. */
export const direct: Check = ok("connection", "goes straight to the server");

async function standby(client: Client): Promise<Check> {
  const { rows } = await client.query<{ standby: boolean }>(
    "SELECT pg_is_in_recovery() AS standby",
  );
  if (rows[0]?.standby !== true) return ok("primary", "the server takes writes");
  return fail(
    "primary",
    "the server is a standby, which takes no writes",
    "give the primary's address",
    3,
  );
}

async function clock(client: Client): Promise<Check> {
  const sent = Date.now();
  const { rows } = await client.query<{ now: number }>(
    "SELECT (date_part('epoch', clock_timestamp()) * 1000)::float8 AS now",
  );
  // This machine's is in whole milliseconds, cut.
  const received = Date.now() + 1;
  const now = rows[0]?.now ?? 0;
  const off = now < sent ? now - sent : Math.max(0, now - received);
  const text = `the server's is ${Math.round(Math.abs(off))} ms ${off < 0 ? "behind" : "ahead of"} this machine's`;
  if (Math.abs(off) < clockWarnMs) return ok("clock", text);
  return warn(
    "clock",
    text,
    "tasks go by the server's clock, log lines by this machine's: let both follow the same time server",
  );
}

async function room(client: Client, most: number, entries: readonly PlacedEntry[]): Promise<Check> {
  const { most: all, taken } = await readConnections(client);
  const { sessions } = await countSessions(client, entries);
  const left = all - leftToOthers - (taken - sessions);
  const own = sessions === 0 ? "" : `, ${sessions} of them by tasks' sessions`;
  const text = `${taken} of ${all} taken${own}; pg-task would use up to ${most + entries.length + 1}, and leaves ${leftToOthers} to others`;
  if (left >= most) return ok("connections", text);
  return warn(
    "connections",
    text,
    left > 0
      ? `it works with fewer sessions; raise max_connections, or lower pg_conf.max to ${left}`
      : "there is none left for sessions: raise max_connections, or end connections that nobody uses",
  );
}

async function leader(client: Client, name: string, database: string): Promise<Check> {
  const { leader: found, standbys } = await readCluster(client, name);
  if (found === null) return await noLeader(client, name, database);
  return ok("leader", `server process ${found.pid}, standbys: ${standbys.length}`);
}

async function noLeader(client: Client, name: string, database: string): Promise<Check> {
  const others = await readOtherLeaders(client, name);
  const other = others.find((each) => !each.sameName && each.database === database);
  const text = `none of the cluster ${name}`;
  if (other === undefined) return warn("leader", text, "start one: pg-task start");
  return warn(
    "leader",
    `${text}; server process ${other.pid} leads one of another name`,
    "give pg_conf.name as that one's configuration has it, or start one: pg-task start",
  );
}

/** Settings of the server that hurt, and why. */
const hurtful: readonly {
  readonly name: string;
  readonly hurts: (value: string) => boolean;
  readonly why: string;
  readonly remedy: string;
}[] = [
  {
    name: "fsync",
    hurts: (value) => value === "off",
    why: "a crash of the machine may lose tasks that were committed, or the whole database",
    remedy: "turn it on wherever data matters",
  },
  {
    name: "full_page_writes",
    hurts: (value) => value === "off",
    why: "a crash of the machine may damage the table",
    remedy: "turn it on",
  },
  {
    name: "autovacuum",
    hurts: (value) => value === "off",
    why: "the queue's indexes grow with every task, and claims get slower",
    remedy: "turn it on, or VACUUM the task table often",
  },
  {
    name: "track_activities",
    hurts: (value) => value === "off",
    why: "what sessions do cannot be seen",
    remedy: "turn it on",
  },
  {
    name: "shared_preload_libraries",
    hurts: (value) => /(^|[,\s/])pg_task\b/.test(value),
    why: "the extension runs as well, and both would run the tasks of a table they share",
    remedy: "take pg_task out of it and restart the server",
  },
];

async function serverSettings(client: Client): Promise<Check[]> {
  const { rows } = await client.query<{ name: string; value: string }>(
    "SELECT name, setting AS value FROM pg_catalog.pg_settings WHERE name = ANY ($1::text[])",
    [hurtful.map(({ name }) => name)],
  );
  const values = new Map(rows.map(({ name, value }) => [name, value]));
  const found = hurtful.flatMap(({ name, hurts, why, remedy }) => {
    const value = values.get(name) ?? "";
    return hurts(value) ? [warn("settings", `${name} is ${value}: ${why}`, remedy)] : [];
  });
  const seen = found.length > 0 ? found : [ok("settings", "none of the server's hurts")];
  const hidden = hurtful.map(({ name }) => name).filter((name) => !values.has(name));
  if (hidden.length === 0) return seen;
  const unseen = `not looked at, since only members of pg_read_all_settings see it: ${hidden.join(", ")}`;
  return [...seen, ok("settings", unseen)];
}
