import assert from "node:assert/strict";
import { beforeEach, it } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import { clusterSchema, groupsSchema, taskListSchema } from "../../../src/web/api/schemas.js";
import { replaceConfig } from "../../support/configFile.js";
import { createDatabase } from "../../support/database.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { startProcess, type TestProcess } from "../../support/process.js";
import { TcpProxy } from "../../support/tcpProxy.js";
import { waitForRow } from "../../support/waitFor.js";
import { token, Web } from "../../support/web.js";

const database = await createDatabase();
const client = await database.connect();
const { database: data, user } = database.target;

async function start(entries: readonly object[]): Promise<{ program: TestProcess; web: Web }> {
  const program = await startProcess({
    config: {
      url: database.url,
      "pg_http.listen": "127.0.0.1:0",
      "pg_http.token": token,
      "pg_task.json": entries,
    },
  });
  const web = await Web.connect(program);
  await program.line("ready");
  return { program, web };
}

/** Returns, for each table, its number of rows or the error. */
async function rowsOrErrors(web: Web): Promise<Record<string, number | string | null>> {
  const { tables } = await web.get(clusterSchema, "/api/tables");
  return Object.fromEntries(tables.map(({ table, summary, error }) => [table, summary?.rows.value ?? error]));
}

/** Returns the value of a metric for a table. */
async function metricValue(web: Web, name: string, table: string): Promise<number | null> {
  const { text } = await web.requestWithoutToken("/metrics");
  const line = text.split("\n").find((each) => each.startsWith(`${name}{`) && each.includes(`table="${table}"`));
  return line === undefined ? null : Number(line.split(" ").at(-1));
}

beforeEach(() => client.query("DROP TABLE IF EXISTS other"));

it("answers after the server has terminated its connections, repeatedly", async () => {
  const { program, web } = await start([
    { data, user },
    { data, user, table: "other" },
  ]);
  const id = await web.tableId("other");
  const terminateAll = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'pg_task web'`;
  for (let round = 0; round < 5; round++) {
    // Concurrent requests, so that both connections are open.
    const answers = await Promise.all(["groups", "tasks"].map((what) => web.request(`/api/tables/${id}/${what}`)));
    assert.deepEqual(
      answers.map(({ status }) => status),
      [200, 200],
    );
    assert.deepEqual(await rowsOrErrors(web), { task: 0, other: 0 });
    await client.query(terminateAll);
  }
  await web.get(groupsSchema, `/api/tables/${id}/groups`);
  await web.get(taskListSchema, `/api/tables/${id}/tasks`);
  assert.equal(await metricValue(web, "pg_task_scrape_error", "other"), 0);
  assert.equal((await program.end()).code, 0);
  assert.equal(program.output.stderr, "");
  assert.deepEqual(program.linesMatching("request failed"), []);
});

it("stops a task although its idle connection was terminated", async () => {
  const { program, web } = await start([{ data, user }]);
  const { rows } = await client.query<{ id: string }>(
    "INSERT INTO task (input, plan) VALUES ('SELECT 1', now() + interval '1 day') RETURNING id",
  );
  const path = `/api/tables/${await web.tableId()}/tasks/${rows[0]?.id}/stop`;
  await client.query(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pg_task web'",
  );
  assert.equal((await web.request(path, { method: "POST" })).status, 200);
  await waitForRow(client, "SELECT FROM task WHERE state = 'STOP'");
  await client.query("DELETE FROM task");
  await program.end();
});

it("reports a lock timeout for a locked table, and the numbers of the others", async () => {
  const { program, web } = await start([
    { data, user },
    { data, user, table: "other" },
  ]);
  await client.query("BEGIN; LOCK TABLE other IN ACCESS EXCLUSIVE MODE");
  // The summary is cached for a second.
  while ((await rowsOrErrors(web))["other"] !== "locked by another session: try again");
  assert.equal((await rowsOrErrors(web))["task"], 0);
  assert.equal(await metricValue(web, "pg_task_scrape_error", "other"), 1);
  assert.equal(await metricValue(web, "pg_task_scrape_error", "task"), 0);
  assert.equal(await metricValue(web, "pg_task_backlog", "task"), 0);
  await client.query("COMMIT");
  while ((await rowsOrErrors(web))["other"] !== 0);
  await program.end();
});

it("replaces a half-open connection", async () => {
  const proxy = await TcpProxy.start(database.target.port, database.target.host);
  const url = new URL(database.url);
  url.host = `127.0.0.1:${proxy.port}`;
  const { program, web } = await start([
    { data, user },
    { url: url.href, table: "other" },
  ]);
  const events = await web.events();
  const id = await web.tableId("other");
  await events.until(new RegExp(`"table":"${id}","live":true`));
  // Concurrent requests, so that both connections are open.
  await Promise.all(["groups", "tasks"].map((what) => web.request(`/api/tables/${id}/${what}`)));
  assert.equal(proxy.freeze("pg_task web"), 3);
  const [{ status, text }, others] = await Promise.all([web.request(`/api/tables/${id}/groups`), rowsOrErrors(web)]);
  assert.equal(status, 503);
  assert.match(text, /the server does not answer/);
  assert.equal(others["task"], 0);
  await events.until(new RegExp(`"table":"${id}","live":false`));
  await events.until(new RegExp(`"table":"${id}","live":true`));
  while ((await rowsOrErrors(web))["other"] !== 0);
  await web.get(groupsSchema, `/api/tables/${id}/groups`);
  assert.equal(await metricValue(web, "pg_task_scrape_error", "other"), 0);
  events.end();
  assert.equal((await program.end()).code, 0);
});

it("answers for other tables while a server is frozen or restarts, and for all tables afterwards", async () => {
  const server = await RestartableServer.create(await freePort());
  await server.start();
  const { program, web } = await start([
    { data, user },
    { url: server.url, table: "other" },
  ]);
  const events = await web.events();
  const id = await web.tableId("other");
  const waitForLive = async (live: boolean): Promise<void> =>
    await events.until(new RegExp(`"table":"${id}","live":${live}`));
  await waitForLive(true);
  assert.deepEqual(await rowsOrErrors(web), { task: 0, other: 0 });

  await server.freezeAll();
  await waitForLive(false);
  const responses = await Promise.all([
    ...Array.from({ length: 70 }, () => web.request(`/api/tables/${id}/groups`)),
    web.request(`/api/tables/${id}/tasks/1/stop`, { method: "POST" }),
  ]);
  for (const { status, text } of responses) {
    assert.equal(status, 503);
    assert.match(text, /does not answer|too many requests/);
  }
  const status = await rowsOrErrors(web);
  assert.equal(status["task"], 0);
  assert.match(String(status["other"]), /does not answer/);
  assert.equal(await metricValue(web, "pg_task_scrape_error", "other"), 1);
  assert.equal(await metricValue(web, "pg_task_scrape_error", "task"), 0);
  server.thaw();
  await waitForLive(true);
  while ((await rowsOrErrors(web))["other"] !== 0);
  assert.equal((await web.request(`/api/tables/${id}/groups`)).status, 200);

  await server.stop();
  await waitForLive(false);
  while (!/ECONNREFUSED|lost|ended/.test(String((await rowsOrErrors(web))["other"])));
  assert.equal((await rowsOrErrors(web))["task"], 0);
  await server.start();
  await waitForLive(true);
  while ((await rowsOrErrors(web))["other"] !== 0);
  assert.equal(await metricValue(web, "pg_task_scrape_error", "other"), 0);

  await server.freezeAll();
  void web.request(`/api/tables/${id}/groups`).catch(() => {});
  assert.equal((await program.end()).code, 0);
  events.end();
  server.thaw();
});

it("ends the streams when the configured tables change", async () => {
  const { program, web } = await start([{ data, user }]);
  const events = await web.events();
  await events.until(/event: live/);
  await replaceConfig(program, {
    url: database.url,
    "pg_http.listen": "127.0.0.1:0",
    "pg_http.token": token,
    "pg_task.json": [
      { data, user },
      { data, user, table: "other" },
    ],
  });
  await assert.rejects(events.until(/event: never/), /the stream ended/);
  const again = await web.events();
  await again.until(new RegExp(`"table":"${await web.tableId("other")}","live":true`));
  again.end();
  await program.end();
});
