import assert from "node:assert/strict";
import { chmod, writeFile } from "node:fs/promises";
import { after } from "node:test";
import { usableBinaries } from "../../../src/embedded/binaries/usableBinaries.js";
import { startGuarded } from "../../../src/embedded/guardedProcess.js";
import { serverAccount } from "../../../src/embedded/serverAccount.js";
import { settingArguments } from "../../../src/embedded/postmaster.js";
import { inspect } from "../../../src/embedded/data/dataDirectory.js";
import { connectTo } from "../../support/connectTo.js";
import { installedProgram } from "../../support/debianPackage.js";
import { test } from "../../support/limitedTest.js";
import { PgTask } from "../../support/pgTask.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { serverPackage } from "../../support/serverPackage.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";
import { waitForRow } from "../../support/tasks.js";

const library = await installedProgram(
  "faketime",
  ["x86_64", "aarch64"].map((machine) => `/usr/lib/${machine}-linux-gnu/faketime/libfaketimeMT.so.1`),
);

/** A server of its own, whose clock `setClock` sets. */
async function startClockServer(preload: string): Promise<{ url: string; setClock: (ahead: string) => Promise<void> }> {
  const server = await RestartableServer.started();
  await server.stop();
  const folder = await temporaryFolder();
  await chmod(folder, 0o711);
  const clock = `${folder}/clock`;
  // The library reads the file at each look at the clock, so that it must never be empty.
  const setClock = (ahead: string): Promise<void> => writeFile(clock, ahead, { flag: "r+" });
  await writeFile(clock, "+0d\n");
  await chmod(clock, 0o644);
  const account = await serverAccount((await inspect(server.dataDirectory)).cluster?.owner ?? null);
  const binaries = await usableBinaries(await serverPackage(), account);
  const postmaster = await new Promise<{ signal(name: NodeJS.Signals): void; ended: Promise<unknown> }>(
    (resolve, reject) => {
      const started = startGuarded(
        binaries.postgres,
        ["-D", server.dataDirectory, ...settingArguments(server.port, { fsync: "off" })],
        {
          directory: server.dataDirectory,
          account,
          environment: {
            LD_PRELOAD: preload,
            FAKETIME_TIMESTAMP_FILE: clock,
            FAKETIME_NO_CACHE: "1",
            FAKETIME_DONT_FAKE_MONOTONIC: "1",
          },
          onLine: (line) => {
            if (line.includes("ready to accept connections")) started.then(resolve, reject);
          },
        },
      );
      started.then(async ({ ended }) => reject(new Error(`server ended: ${JSON.stringify(await ended)}`)), reject);
    },
  );
  after(async () => {
    postmaster.signal("SIGINT");
    await postmaster.ended;
  });
  return { url: server.url, setClock };
}

test("schedules run on after the server's clock was a day ahead for a moment", async (context) => {
  if (library === null) return context.skip("libfaketime is not installed, and apt cannot install it here");
  const { url, setClock } = await startClockServer(library);
  const pgTask = new PgTask();
  await pgTask.start({ url });
  const client = await connectTo(url);
  after(() => client.end());
  const message = "server's clock was set back, schedules replanned";
  await client.query(`
    INSERT INTO task (input, "group", rule, zone) VALUES ('SELECT 1', 'rule', '*/2 * * * * *', 'UTC');
    INSERT INTO task (input, "group", repeat) VALUES ('SELECT 1', 'repeat', '2 seconds');
    INSERT INTO task (input, "group", plan) VALUES ('SELECT 1', 'once', now() + interval '1 day 1 hour')`);

  await setClock("+1d\n");
  for (const group of ["rule", "repeat"]) {
    await waitForRow(
      client,
      `SELECT FROM task WHERE "group" = $1 AND state = 'PLAN' AND created > $2::timestamptz + interval '23 hours'`,
      [group, new Date().toISOString()],
    );
  }
  // The others may have gone on by themselves when the step is noticed, if they run in that moment.
  await client.query(
    "INSERT INTO task (input, \"group\", rule, zone) VALUES ('SELECT 1', 'daily', '0 0 * * *', 'UTC')",
  );
  assert.equal(pgTask.linesMatching(message).length, 0);

  await setClock("+0d\n");
  await pgTask.line(message);
  const { last } = await waitForRow<{ last: string }>(client, "SELECT max(id)::text AS last FROM task");
  for (const group of ["rule", "repeat"]) {
    await waitForRow(client, `SELECT FROM task WHERE "group" = $1 AND state = 'DONE' AND id > $2 AND stop <= now()`, [
      group,
      last,
    ]);
  }
  await waitForRow(client, `SELECT FROM task WHERE "group" = 'daily' AND plan <= now() + interval '1 day'`);
  await waitForRow(client, `SELECT FROM task WHERE "group" = 'once' AND plan > now() + interval '1 day'`);
});
