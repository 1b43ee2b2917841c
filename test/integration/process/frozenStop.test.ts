import assert from "node:assert/strict";
import { it } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import { connectTo } from "../../support/connectTo.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { startProcess } from "../../support/process.js";
import { insertTask, waitForRun } from "../../support/waitFor.js";

const server = await RestartableServer.create(await freePort());
await server.start();

it("stops soon after the grace period although tasks run and no backend answers", async (context) => {
  const graceMs = 500;
  const program = await startProcess({ config: { url: server.url, "pg_conf.grace": graceMs } });
  await program.line("ready");
  const client = await connectTo(server.url);
  for (const group of ["one", "two"]) {
    const id = await insertTask(client, "SELECT pg_sleep(600)", group);
    await waitForRun(client, id);
  }
  const { rows } = await client.query<{ pid: number }>(
    "SELECT pid FROM pg_stat_activity WHERE application_name ~ '^pg_(conf|work|task)'",
  );
  assert.equal(rows.length, 4);
  server.freeze(rows.map(({ pid }) => pid));
  const before = performance.now();
  assert.deepEqual(await program.end(), { code: 0, signal: null });
  const overrunMs = Math.round(performance.now() - before - graceMs);
  context.diagnostic(`ended ${overrunMs} ms after the grace period`);
  await client.end();
});
