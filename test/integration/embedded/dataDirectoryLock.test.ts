import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chown, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { serverAccount } from "../../../src/embedded/serverAccount.js";
import { usableBinaries } from "../../../src/embedded/binaries/usableBinaries.js";
import { inspect, pathFor } from "../../../src/embedded/data/dataDirectory.js";
import { startGuarded } from "../../../src/embedded/guardedProcess.js";
import { installedPackage } from "../../../src/embedded/binaries/installedPackage.js";
import { readLockFile } from "../../../src/embedded/data/lockFile.js";
import { recordingLog, spawnHolder, start, until, untilGone } from "../../support/embedded.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";
import { withConnectionTo } from "../../support/connectTo.js";

const folder = await temporaryFolder();
const dataDirectory = join(folder, "data");

test("of two concurrent starts on new data one succeeds, and the other names it", async () => {
  const holders = [spawnHolder(dataDirectory), spawnHolder(dataDirectory)];
  const events = await Promise.all(holders.map((holder) => holder.next()));
  const winner = events.findIndex(({ event }) => event === "started");
  const [won, lost] = [events[winner], events[1 - winner]];
  assert.ok(won?.event === "started" && lost?.event === "failed", JSON.stringify(events));
  assert.equal(lost.code, "EMBEDDED_DATA_IN_USE", lost.message);
  assert.deepEqual(await readdir(folder), ["data"]);
  await Promise.all(holders.map((holder) => holder.kill()));
  await untilGone(won.pid);
});

test("a second start names the process and port that use the data", async () => {
  const holder = spawnHolder(dataDirectory);
  const { pid, port } = await holder.started();
  await assert.rejects(start({ dataDirectory, port }), {
    code: "EMBEDDED_DATA_IN_USE",
    message: `the data folder ${dataDirectory} is in use: the pg-task of process ${holder.pid} runs a server (process ${pid}, port ${port}) on it; stop that server, or give another data folder`,
  });
  await holder.kill();
  await untilGone(pid);
});

test("a server started by another program on the data is named", async () => {
  const cluster = (await inspect(dataDirectory)).cluster;
  const account = await serverAccount(cluster?.owner ?? null);
  const { postgres } = await usableBinaries(await installedPackage(), account);
  const other = await startGuarded(
    postgres,
    [
      "-D",
      await pathFor(account, dataDirectory),
      "-c",
      "listen_addresses=",
      "-c",
      "port=5999",
      "-c",
      // The socket is in the data folder, because this test may run several times at once.
      "unix_socket_directories=.",
    ],
    { directory: dataDirectory, account, onLine: () => {} },
  );
  await until("it is ready", async () => (await readLockFile(dataDirectory))?.status === "ready");
  await assert.rejects(start({ dataDirectory }), {
    code: "EMBEDDED_DATA_IN_USE",
    message: new RegExp(
      `^the data folder .* in use: a PostgreSQL server \\(process ${other.pid}, port 5999\\) runs on it; `,
    ),
  });
  other.signal("SIGINT");
  assert.deepEqual(await other.ended, { code: 0, signal: null });
});

test("the server stops when its process is killed, and leaves nothing to clean up", async () => {
  const holder = spawnHolder(dataDirectory);
  const { pid } = await holder.started();
  await holder.kill();
  await untilGone(pid);
  assert.equal(await readLockFile(dataDirectory), null);
});

test("a start right after its predecessor was killed waits for the server to stop, on the same port", async () => {
  const holder = spawnHolder(dataDirectory);
  const { port, pid } = await holder.started();
  await holder.kill();
  const server = await start({ dataDirectory, port });
  assert.notEqual(server.pid, pid);
  await server.stop();
});

test("the next start shuts down a server that outlived its process and the guard", async () => {
  const holder = spawnHolder(dataDirectory);
  const { pid } = await holder.started();
  process.kill(await guardOf(pid), "SIGKILL");
  await holder.kill();
  const server = await start({ dataDirectory });
  assert.notEqual(server.pid, pid);
  await server.stop();
});

/** Returns the pid of the guard, the shell in the server's process session. */
async function guardOf(server: number): Promise<number> {
  const { stdout } = await promisify(execFile)("ps", ["-eo", "pid=,sess=,comm="]);
  const guard = new RegExp(`^ *(\\d+) +${server} +sh$`, "m").exec(stdout)?.[1];
  assert.ok(guard !== undefined, stdout);
  return Number(guard);
}

test("Ctrl-C in the terminal does not reach the server", async () => {
  const holder = spawnHolder(dataDirectory);
  const { url, pid } = await holder.started();
  process.kill(-holder.pid, "SIGINT");
  assert.deepEqual(await holder.next(), { event: "interrupted" });
  await withConnectionTo(url, (client) => client.query("SELECT 1"));
  assert.equal((await readLockFile(dataDirectory))?.status, "ready");
  await holder.kill();
  await untilGone(pid);
});

test("a server that has just begun to start is not shut down by another start", async () => {
  const server = await start({ dataDirectory });
  const path = join(dataDirectory, "postmaster.pid");
  const ready = await readFile(path, "utf8");
  // At first, a server's lock file has no status.
  await writeLockFile(ready.split("\n").slice(0, 5).join("\n"));
  const { log, lines } = recordingLog();
  const second = start({ dataDirectory, log });
  const refused = assert.rejects(second, { code: "EMBEDDED_DATA_IN_USE" });
  await until("the second start waits", async () =>
    lines.some(({ msg }) => msg.startsWith("waiting for the embedded")),
  );
  await writeLockFile(ready);
  await refused;
  await withConnectionTo(server.url, (client) => client.query("SELECT 1"));
  await server.stop();
});

test("a lock file with a reused process id does not block", async () => {
  const { uid, gid } = await stat(dataDirectory);
  const stranger = spawn("sleep", ["3600"], {
    ...(process.getuid?.() === 0 ? { uid, gid } : {}),
    cwd: "/",
  });
  after(() => stranger.kill());
  await once(stranger, "spawn");
  await writeLockFile(`${stranger.pid}\n${dataDirectory}\n1\n5432\n\n127.0.0.1\n\nready   \n`);
  const server = await start({ dataDirectory });
  await withConnectionTo(server.url, (client) => client.query("SELECT 1"));
  await server.stop();
  assert.equal(stranger.exitCode, null);
});

test("a lock file of a dead process, or an empty one, does not block", async () => {
  const gone = spawn("true");
  await once(gone, "exit");
  for (const content of [`${gone.pid}\n${dataDirectory}\n1\n5432\n\n127.0.0.1\n\nready   \n`, ""]) {
    await writeLockFile(content);
    const server = await start({ dataDirectory });
    await server.stop();
  }
});

async function writeLockFile(content: string): Promise<void> {
  const path = join(dataDirectory, "postmaster.pid");
  await writeFile(path, content, { mode: 0o600 });
  const { uid, gid } = await stat(dataDirectory);
  await chown(path, uid, gid);
}

test("a start that was killed during initdb does not block the next one", async () => {
  const fresh = join(folder, "fresh");
  const holder = spawnHolder(fresh);
  const unfinished = async () => (await readdir(folder)).filter((name) => name.startsWith(".fresh.unfinished-"));
  await until("initdb has begun", async () => {
    const [name] = await unfinished();
    return name !== undefined && (await readdir(join(folder, name))).includes("PG_VERSION");
  });
  await holder.kill();
  assert.equal((await readdir(folder)).includes("fresh"), false);
  assert.equal((await unfinished()).length, 1);
  const server = await start({ dataDirectory: fresh });
  await server.stop();
  assert.deepEqual(await unfinished(), []);
});
