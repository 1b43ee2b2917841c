import assert from "node:assert/strict";
import { it } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import { clusterSchema, groupsSchema } from "../../../src/web/api/schemas.js";
import { taskListSchema } from "../../../src/web/api/taskSchemas.js";
import { serverTarget } from "../../support/database.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { startWeb } from "../../support/startWeb.js";
import { TcpProxy } from "../../support/tcpProxy.js";
import { untyped } from "../../support/untyped.js";
import { insertTask, waitForRow } from "../../support/tasks.js";
import { poll } from "../../support/web.js";

const { port, host } = serverTarget();
const proxy = await TcpProxy.start(port, host);
const server = await RestartableServer.create(await freePort());
await server.start();
const { client, config, database, pgTask, web } = await startWeb(({ url, target: { database: data, user } }) => {
  const proxied = new URL(url);
  proxied.host = `127.0.0.1:${proxy.port}`;
  return {
    "pg_task.json": [
      { data, user },
      { data, user, table: "other" },
      { url: proxied.href, table: "proxied" },
      { url: server.url, table: "distant" },
    ],
  };
});

const terminateAll = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE datname = current_database() AND application_name = 'pg_task web'`;

/** Returns, for each table, its number of rows or the error. */
async function rowsOrErrors(): Promise<Record<string, number | string | null>> {
  const { tables } = await web.get(clusterSchema, "/api/tables");
  return Object.fromEntries(tables.map(({ table, summary, error }) => [table, summary?.rows.value ?? error]));
}

/** Returns the value of a metric for a table. */
async function metricValue(name: string, table: string): Promise<number | null> {
  const { text } = await web.requestWithoutToken("/metrics");
  const line = text.split("\n").find((each) => each.startsWith(`${name}{`) && each.includes(`table="${table}"`));
  return line === undefined ? null : Number(line.split(" ").at(-1));
}

/** Waits until the rows or the error of a table satisfy the condition. */
async function untilRows(table: string, fits: (rows: number | string | null | undefined) => boolean): Promise<void> {
  await poll(rowsOrErrors, (all) => fits(all[table]));
}

it("answers after the server has terminated its connections, repeatedly", async () => {
  const id = await web.tableId("other");
  for (let round = 0; round < 5; round++) {
    // Concurrent requests, so that both connections are open.
    const answers = await Promise.all(["groups", "tasks"].map((what) => web.request(`/api/tables/${id}/${what}`)));
    assert.deepEqual(
      answers.map(({ status }) => status),
      [200, 200],
    );
    assert.deepEqual(await rowsOrErrors(), { task: 0, other: 0, proxied: 0, distant: 0 });
    await client.query(terminateAll);
  }
  await web.get(groupsSchema, `/api/tables/${id}/groups`);
  await web.get(taskListSchema, `/api/tables/${id}/tasks`);
  assert.equal(await metricValue("pg_task_scrape_error", "other"), 0);
  assert.deepEqual(pgTask.linesMatching("request failed"), []);
});

it("stops a task although its idle connection was terminated", async () => {
  const id = await insertTask(client, "SELECT 1", { plan: "2999-01-01" });
  const path = `/api/tables/${await web.tableId()}/tasks/${id}/stop`;
  await client.query(terminateAll);
  assert.equal((await web.request(path, { method: "POST" })).status, 200);
  await waitForRow(client, "SELECT FROM task WHERE state = 'STOP'");
  await client.query("DELETE FROM task");
});

it("reports a lock timeout for a locked table, and the numbers of the others", async () => {
  await client.query("BEGIN; LOCK TABLE other IN ACCESS EXCLUSIVE MODE");
  // The summary is cached for a second.
  await untilRows("other", (rows) => rows === "locked by another session: try again");
  assert.equal((await rowsOrErrors())["task"], 0);
  assert.equal(await metricValue("pg_task_scrape_error", "other"), 1);
  assert.equal(await metricValue("pg_task_scrape_error", "task"), 0);
  assert.equal(await metricValue("pg_task_backlog", "task"), 0);
  await client.query("COMMIT");
  await untilRows("other", (rows) => rows === 0);
});

it("replaces a half-open connection", async () => {
  const events = await web.events();
  const id = await web.tableId("proxied");
  await events.until(new RegExp(`"table":"${id}","live":true`));
  // Concurrent requests, so that both connections are open.
  await Promise.all(["groups", "tasks"].map((what) => web.request(`/api/tables/${id}/${what}`)));
  assert.equal(proxy.freeze("pg_task web"), 3);
  const [{ status, text }, others] = await Promise.all([web.request(`/api/tables/${id}/tasks`), rowsOrErrors()]);
  assert.equal(status, 503);
  assert.match(text, /the server does not answer/);
  assert.equal(others["task"], 0);
  await events.until(new RegExp(`"table":"${id}","live":false`));
  await events.until(new RegExp(`"table":"${id}","live":true`));
  await untilRows("proxied", (rows) => rows === 0);
  await web.get(groupsSchema, `/api/tables/${id}/groups`);
  assert.equal(await metricValue("pg_task_scrape_error", "proxied"), 0);
  events.end();
});

it("ends the streams when the configured tables change", async () => {
  const events = await web.events();
  await events.until(/event: live/);
  const entry = { data: database.target.database, user: database.target.user };
  await pgTask.reload(
    untyped({
      ...config,
      "pg_task.json": [entry, { ...entry, table: "another" }, { url: server.url, table: "distant" }],
    }),
  );
  await assert.rejects(events.until(/event: never/), /the stream ended/);
  const again = await web.events();
  await again.until(new RegExp(`"table":"${await web.tableId("another")}","live":true`));
  await untilRows("another", (rows) => rows === 0);
  again.end();
});

it("answers for other tables while a server is frozen or restarts, and for all tables afterwards", async () => {
  const events = await web.events();
  const id = await web.tableId("distant");
  const waitForLive = async (live: boolean): Promise<void> =>
    await events.until(new RegExp(`"table":"${id}","live":${live}`));
  await waitForLive(true);
  assert.deepEqual(await rowsOrErrors(), { task: 0, another: 0, distant: 0 });

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
  const status = await rowsOrErrors();
  assert.equal(status["task"], 0);
  assert.match(String(status["distant"]), /does not answer/);
  assert.equal(await metricValue("pg_task_scrape_error", "distant"), 1);
  assert.equal(await metricValue("pg_task_scrape_error", "task"), 0);
  server.thaw();
  await waitForLive(true);
  await untilRows("distant", (rows) => rows === 0);
  assert.equal((await web.request(`/api/tables/${id}/groups`)).status, 200);

  await server.stop();
  await waitForLive(false);
  await untilRows("distant", (rows) => /ECONNREFUSED|lost|ended/.test(String(rows)));
  assert.equal((await rowsOrErrors())["task"], 0);
  await server.start();
  await waitForLive(true);
  await untilRows("distant", (rows) => rows === 0);
  assert.equal(await metricValue("pg_task_scrape_error", "distant"), 0);

  await server.freezeAll();
  void web.request(`/api/tables/${id}/groups`).catch(() => {});
  await pgTask.stop();
  events.end();
  server.thaw();
});
