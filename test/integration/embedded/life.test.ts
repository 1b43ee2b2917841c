import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmod, mkdir, readdir, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { isRoot, quick, recordingLog, start, until } from "../../support/embedded.js";
import { installedPackage } from "../../../src/embedded/binaries/installedPackage.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";
import { withConnectionTo } from "../../support/connectTo.js";

const folder = await temporaryFolder();
const dataDirectory = join(folder, "made", "data");
const { log, lines } = recordingLog();
const settings = { ...quick, work_mem: "5MB" };
const server = await start({ dataDirectory, settings, log });

async function show(expression: string): Promise<unknown> {
  return await withConnectionTo(server.url, async (client) => {
    const { rows } = await client.query(`SELECT (SELECT ${expression}) AS value`);
    return rows[0].value;
  });
}

test("the URL can be used as it is", async () => {
  assert.equal(server.url, `postgresql://postgres@127.0.0.1:${server.port}/postgres`);
  assert.equal(await show("current_user || '@' || current_database()"), "postgres@postgres");
  assert.equal(await show("rolsuper FROM pg_roles WHERE rolname = current_user"), true);
});

test("text is UTF-8 and sorts the same on every host", async () => {
  const query = "pg_encoding_to_char(encoding), datlocprovider, datlocale";
  const found = await withConnectionTo(server.url, async (client) => {
    const { rows } = await client.query({
      text: `SELECT ${query} FROM pg_database WHERE datname = 'template1'`,
      rowMode: "array",
    });
    return rows;
  });
  assert.deepEqual(found, [["UTF8", "b", "C.UTF-8"]]);
  assert.equal(await show("upper('ж')"), "Ж");
});

test("it listens on loopback only, without a socket file, and rejects other hosts", async () => {
  assert.equal(await show("current_setting('listen_addresses')"), "127.0.0.1");
  assert.equal(await show("current_setting('unix_socket_directories')"), "");
  const addresses = await show(
    "array_agg(DISTINCT address ORDER BY address) FROM pg_hba_file_rules WHERE address IS NOT NULL",
  );
  assert.deepEqual(addresses, ["127.0.0.1", "::1"]);
});

test("settings are passed to the server", async () => {
  assert.equal(await show("current_setting('work_mem')"), "5MB");
  assert.equal(await show("current_setting('fsync')"), "off");
});

test("warns once that any local user may connect", () => {
  const warnings = lines.filter((line) => /any local user may connect/.test(line.msg));
  assert.deepEqual(
    warnings.map((line) => line.level),
    ["warn"],
  );
});

test("errors that end a session are logged as warnings, errors of statements at debug level", async () => {
  await withConnectionTo(server.url, async (client) => {
    await client.query("DO $$ BEGIN RAISE LOG 'told'; RAISE WARNING 'warned' USING DETAIL = 'more'; END $$");
    await assert.rejects(client.query("SELECT 1/0"));
    await assert.rejects(client.query("SELECT pg_terminate_backend(pg_backend_pid())"));
  });
  await until("the last line is in the log", async () =>
    lines.some((line) => line.msg.includes("FATAL:  terminating connection")),
  );
  // A log line with the failed statement would appear between these two lines.
  await until("a later line is in the log", async () => {
    await withConnectionTo(server.url, (client) => client.query("DO $$ BEGIN RAISE LOG 'later'; END $$"));
    return lines.some((line) => line.msg.includes("LOG:  later"));
  });
  assert.equal(levelOf("LOG:  told"), "debug");
  assert.equal(levelOf("WARNING:  warned"), "debug");
  assert.equal(levelOf("DETAIL:  more"), "debug");
  assert.equal(levelOf("ERROR:  division by zero"), "debug");
  assert.equal(levelOf("FATAL:  terminating connection"), "warn");
  assert.ok(!lines.some((line) => line.msg.includes("SELECT pg_terminate_backend")));
  assert.equal(levelOf("is ready to accept connections"), "debug");
});

test("the server and its data belong to an unprivileged account", async () => {
  const { uid, mode } = await stat(server.dataDirectory);
  assert.notEqual(uid, 0);
  assert.equal(mode & 0o777, 0o700);
  if (!isRoot) assert.equal(uid, process.getuid?.());
});

test("no unfinished data directory is left", async () => {
  assert.deepEqual(await readdir(dirname(server.dataDirectory)), ["data"]);
});

test("stop can be called twice, and the data survives until the next start", async () => {
  await withConnectionTo(server.url, (client) => client.query("CREATE TABLE kept AS SELECT 42 AS value"));
  const before = lines.length;
  assert.ok((await inSession(server.pid)).includes("sh"));
  await Promise.all([server.stop(), server.stop()]);
  await server.stop();
  assert.match(await server.ended, /^exit code 0; /);
  await until("the guard is gone", async () => (await inSession(server.pid)).length === 0);
  assert.deepEqual(
    lines.slice(before).filter((line) => line.level === "warn"),
    [],
  );
  const next = await start({ dataDirectory });
  const { rows } = await withConnectionTo(next.url, (client) => client.query("SELECT value FROM kept"));
  assert.deepEqual(rows, [{ value: 42 }]);
  await next.stop();
});

test("stop terminates open sessions instead of waiting for them", async () => {
  const next = await start({ dataDirectory });
  await withConnectionTo(next.url, async (client) => {
    const running = assert.rejects(client.query("SELECT pg_sleep(3600)"), /terminat/);
    await Promise.all([next.stop(), running]);
  });
});

test("an unexpected end is reported with its signal, and not explained by errors that came before", async () => {
  const recording = recordingLog();
  const next = await start({ dataDirectory, log: recording.log });
  await withConnectionTo(next.url, async (client) => {
    await assert.rejects(client.query("SELECT 1/0"));
    await assert.rejects(client.query("SELECT pg_terminate_backend(pg_backend_pid())"));
  });
  await until("the session's end is in the log", async () =>
    recording.lines.some((line) => line.msg.includes("FATAL:  terminating connection")),
  );
  process.kill(next.pid, "SIGKILL");
  assert.equal(await next.ended, "signal SIGKILL; it has logged nothing about its end");
  const recovered = await start({ dataDirectory });
  const { rows } = await withConnectionTo(recovered.url, (client) => client.query("SELECT value FROM kept"));
  assert.deepEqual(rows, [{ value: 42 }]);
  await recovered.stop();
});

test("an end that the server has logged is reported with its log lines", async () => {
  const next = await start({ dataDirectory });
  process.kill(next.pid, "SIGINT");
  assert.match(await next.ended, /^exit code 0; its last log lines: LOG: {2}received fast shutdown request/);
});

test("an existing empty folder is accepted", async () => {
  const empty = join(folder, "empty");
  await mkdir(empty);
  const next = await start({ dataDirectory: empty });
  assert.equal(next.dataDirectory, empty);
  await next.stop();
});

test("as root, folders above the data may be closed to the server's account, or open", { skip: !isRoot }, async () => {
  const shown = async () => {
    const next = await start({ dataDirectory });
    const { rows } = await withConnectionTo(next.url, (client) => client.query("SHOW data_directory"));
    await next.stop();
    return rows[0].data_directory;
  };
  assert.equal(await shown(), "/proc/self/cwd");
  await chmod(folder, 0o755);
  assert.equal(await shown(), dataDirectory);
});

test("a server that never becomes ready is reported as an error", async () => {
  const installed = { ...(await installedPackage()), native: await silentPackage() };
  const waiting = start({ dataDirectory }, { installed, silenceLimitMs: 3_000, cacheFolders: [] });
  await assert.rejects(waiting, {
    code: "EMBEDDED_FAILED",
    message: /was not ready, and logged nothing for 3000 ms; its last log lines: LOG: {2}hanging/,
  });
});

function levelOf(text: string): string | undefined {
  return lines.find((line) => line.msg.includes(text))?.level;
}

/** Returns the names of the programs in the server's process session. */
async function inSession(pid: number): Promise<string[]> {
  const { stdout } = await promisify(execFile)("ps", ["-eo", "sess=,comm="]);
  const processes = stdout.split("\n").map((line) => line.trim().split(/\s+/));
  return processes.filter(([session]) => session === String(pid)).map(([, name]) => name ?? "");
}

/** Creates a package whose programs print their version. Its server does nothing. */
async function silentPackage(): Promise<string> {
  const native = join(await temporaryFolder(), "native");
  await chmod(dirname(native), 0o755);
  await mkdir(join(native, "bin"), { recursive: true });
  await mkdir(join(native, "lib/postgresql"), { recursive: true });
  await mkdir(join(native, "share/postgresql"), { recursive: true });
  await writeFile(join(native, "share/postgresql/postgres.bki"), "");
  const script = `#!/bin/sh
case $1 in -V) echo "postgres (PostgreSQL) 18.4"; exit;; esac
echo "LOG:  hanging" >&2
exec sleep 3600
`;
  for (const name of ["postgres", "initdb"]) {
    await writeFile(join(native, "bin", name), script, { mode: 0o755 });
  }
  return native;
}
