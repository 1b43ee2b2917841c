import assert from "node:assert/strict";
import { test } from "node:test";
import { TaskClient } from "../../../src/library/index.js";
import { cli } from "../../support/cli.js";
import { PgTask } from "../../support/pgTask.js";
import { password, startRemoteServer } from "../../support/remoteServer.js";
import { token, Web } from "../../support/web.js";

const pgTask = new PgTask();
const server = await startRemoteServer();
await server.admin.query("ALTER ROLE scram SUPERUSER");
const at = `postgresql://scram:${encodeURIComponent(password)}@localhost:${server.port}/postgres`;
/** What Neon shows, except for the host. */
const url = `${at}?sslmode=require&channel_binding=require`;

test("process, page, commands and library take a provider's URL as it is", async () => {
  await pgTask.start({ url, "pg_http.listen": "127.0.0.1:0", "pg_http.token": token });
  const own = `${url}&application_name=my%20program&options=-c%20work_mem%3D3MB`;
  await using tasks = new TaskClient(own);
  const ended = await tasks.wait(await tasks.add("SHOW work_mem"));
  assert.equal(ended.state, "DONE");
  const { rows } = await server.admin.query<{ name: string; encrypted: boolean }>(
    `SELECT application_name AS name, ssl AS encrypted FROM pg_stat_activity JOIN pg_stat_ssl USING (pid)
     WHERE usename = 'scram' AND backend_type = 'client backend'`,
  );
  assert.ok(rows.some(({ name }) => name === "my program"));
  assert.deepEqual(new Set(rows.map(({ encrypted }) => encrypted)), new Set([true]));
  const shown = await cli(["show", ended.id], { env: { DATABASE_URL: url } });
  assert.deepEqual([shown.code, shown.stderr], [0, ""]);
  const web = await Web.connect(pgTask);
  assert.equal((await web.request(`/api/tables/${await web.tableId()}/tasks`)).status, 200);
});

test("a connection that lacks the required channel binding is refused, and says so", async () => {
  const plain = `${at}?sslmode=disable&channel_binding=require`;
  const { code, stderr } = await cli(["list"], { env: { DATABASE_URL: plain } });
  assert.equal(code, 3);
  assert.match(stderr, /channel binding (is )?required/);
  await using tasks = new TaskClient(plain);
  await assert.rejects(tasks.add("SELECT 1"), { code: "CONNECTION_FAILED", message: /channel binding (is )?required/ });
});
