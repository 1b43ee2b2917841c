import { execFile } from "node:child_process";
import { appendFile, mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { connectTo } from "./connectTo.js";
import type { RestartableServer } from "./restartableServer.js";
import { waitForRow } from "./tasks.js";

const run = promisify(execFile);

/**
 * Makes `standby` a streaming replica of `primary`, which is running. `standby` must be stopped. Its data are replaced
 * by a base backup. The programs of the server's npm package do not include pg_basebackup, so this takes the same steps.
 */
export async function makeReplica(primary: RestartableServer, standby: RestartableServer): Promise<void> {
  const [from, to] = [primary.dataDirectory, standby.dataDirectory];
  const client = await connectTo(primary.url);
  const { rows: versions } = await client.query<{ major: number }>(
    "SELECT current_setting('server_version_num')::integer / 10000 AS major",
  );
  const isNew = (versions[0]?.major ?? 0) >= 15;
  const [start, stop] = isNew
    ? ["pg_backup_start('copy', true)", "pg_backup_stop(false)"]
    : ["pg_start_backup('copy', true, false)", "pg_stop_backup(false, false)"];
  await rm(to, { recursive: true, force: true });
  await client.query(`SELECT ${start}`);
  // tar, unlike cp, takes a file as it is when the server removes or changes it meanwhile, and ends with status 1.
  await mkdir(to, { mode: 0o700 });
  await copyFolder(from, to);
  const { rows } = await client.query<{ labelfile: string }>(`SELECT labelfile FROM ${stop}`);
  await client.end();
  await writeFile(join(to, "backup_label"), rows[0]?.labelfile ?? "");
  await writeFile(join(to, "standby.signal"), "");
  const source = `host=127.0.0.1 port=${primary.port} user=postgres application_name=replica`;
  await appendFile(join(to, "postgresql.auto.conf"), `primary_conninfo = '${source}'\n`);
  const { uid, gid } = await stat(from);
  await run("chown", ["-R", `${uid}:${gid}`, to]);
}

async function copyFolder(from: string, to: string): Promise<void> {
  for (const name of await readdir(from)) {
    if (/^(postmaster\.(pid|opts)|standby\.signal|backup_label.*|pg_stat_tmp)$/.test(name)) continue;
    await run("cp", ["-a", join(from, name), to]);
  }
  // The standby gets its write-ahead log from the primary.
  for (const name of await readdir(join(to, "pg_wal"))) await rm(join(to, "pg_wal", name), { recursive: true });
  await mkdir(join(to, "pg_wal", "archive_status"));
  await mkdir(join(to, "pg_wal", "summaries"));
  await mkdir(join(to, "pg_stat_tmp"), { recursive: true });
  const settings = join(to, "postgresql.auto.conf");
  const lines = (await readFile(settings, "utf8")).split("\n");
  await writeFile(settings, lines.filter((line) => !line.startsWith("primary_conninfo")).join("\n"));
}

/** Waits until the standby has applied everything that the primary has committed so far. */
export async function waitForReplay(primary: RestartableServer, standby: RestartableServer): Promise<void> {
  const [from, to] = [await connectTo(primary.url), await connectTo(standby.url)];
  const { rows } = await from.query<{ lsn: string }>("SELECT pg_current_wal_insert_lsn()::text AS lsn");
  await waitForRow(to, "SELECT WHERE pg_last_wal_replay_lsn() >= $1::pg_lsn", [rows[0]?.lsn]);
  await Promise.all([from.end(), to.end()]);
}

/** Stops the standby from receiving anything further, so that it lags from now on. */
export async function detachReplica(standby: RestartableServer): Promise<void> {
  const client = await connectTo(standby.url);
  await client.query("ALTER SYSTEM SET primary_conninfo = 'host=127.0.0.1 port=1'");
  await client.query("SELECT pg_reload_conf()");
  await waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM pg_stat_wal_receiver)");
  await client.end();
}

export async function promote(standby: RestartableServer): Promise<void> {
  const client = await connectTo(standby.url);
  // A statement that waits for the promotion would delay it, because what it still has to apply may be in conflict
  // with the statement's snapshot.
  await client.query("SELECT pg_promote(false)");
  await waitForRow(client, "SELECT WHERE NOT pg_is_in_recovery()");
  await client.end();
}
