import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { it } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import { connectTo } from "../../support/connectTo.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { startProcess } from "../../support/process.js";

const server = await RestartableServer.create(await freePort());
await server.start();

it("stops although the server no longer answers", async () => {
  const program = await startProcess({ config: { url: server.url, "pg_conf.grace": 100 } });
  await program.line("ready");
  const client = await connectTo(server.url);
  const { rows } = await client.query<{ pid: number }>(
    "SELECT pid FROM pg_stat_activity WHERE application_name ~ '^pg_'",
  );
  server.freeze(rows.map(({ pid }) => pid));
  assert.deepEqual(await program.end(), { code: 0, signal: null });
  await client.end();
});

it("stops while it connects to a server that accepts the connection and sends nothing", async () => {
  const silent = createServer().listen(0, "127.0.0.1");
  await once(silent, "listening");
  const address = silent.address();
  const port = typeof address === "object" ? address?.port : 0;
  const program = await startProcess({
    env: { DATABASE_URL: `postgresql://postgres@127.0.0.1:${port}/postgres?connect_timeout=0` },
  });
  await once(silent, "connection");
  assert.deepEqual(await program.end(), { code: 0, signal: null });
  silent.close();
});
