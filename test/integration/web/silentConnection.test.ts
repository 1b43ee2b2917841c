import assert from "node:assert/strict";
import { beforeEach, it } from "node:test";
import { freePort } from "../../../src/embedded/port.js";
import { clusterSchema, groupsSchema, tasksSchema } from "../../../src/web/api/schemas.js";
import { replaceConfig } from "../../support/configFile.js";
import { createDatabase } from "../../support/database.js";
import { OwnServer } from "../../support/ownServer.js";
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
  const web = await Web.of(program);
  await program.line("ready");
  return { program, web };
}

/** What is known of each table: its rows, or why they are not. */
async function known(web: Web): Promise<Record<string, number | string | null>> {
  const { tables } = await web.get(clusterSchema, "/api/tables");
  return Object.fromEntries(
    tables.map(({ table, summary, error }) => [table, summary?.rows.value ?? error]),
  );
}

/** The value that the metric has for that table. */
async function scraped(web: Web, name: string, table: string): Promise<number | null> {
  const { text } = await web.anonymously("/metrics");
  const line = text
    .split("\n")
    .find((each) => each.startsWith(`${name}{`) && each.includes(`table="${table}"`));
  return line === undefined ? null : Number(line.split(" ").at(-1));
}

beforeEach(() => client.query("DROP TABLE IF EXISTS aside"));

it("answers again after the server has ended its connections, time after time", async () => {
  const { program, web } = await start([
    { data, user },
    { data, user, table: "aside" },
  ]);
  const id = await web.tableId("aside");
  const endAll = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'pg_task web'`;
  for (let round = 0; round < 5; round++) {
    // Two at once, so that both connections are there.
    const answers = await Promise.all(
      ["groups", "tasks"].map((what) => web.ask(`/api/tables/${id}/${what}`)),
    );
    assert.deepEqual(
      answers.map(({ status }) => status),
      [200, 200],
    );
    assert.deepEqual(await known(web), { task: 0, aside: 0 });
    await client.query(endAll);
  }
  await web.get(groupsSchema, `/api/tables/${id}/groups`);
  await web.get(tasksSchema, `/api/tables/${id}/tasks`);
  assert.equal(await scraped(web, "pg_task_scrape_error", "aside"), 0);
  assert.equal((await program.end()).code, 0);
  assert.equal(program.output.stderr, "");
  assert.deepEqual(program.said("request failed"), []);
});

it("stops a task though the connection was ended before", async () => {
  const { program, web } = await start([{ data, user }]);
  const { rows } = await client.query<{ id: string }>(
    "INSERT INTO task (input, plan) VALUES ('SELECT 1', now() + interval '1 day') RETURNING id",
  );
  const path = `/api/tables/${await web.tableId()}/tasks/${rows[0]?.id}/stop`;
  await client.query(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pg_task web'",
  );
  assert.equal((await web.ask(path, { method: "POST" })).status, 200);
  await waitForRow(client, "SELECT FROM task WHERE state = 'STOP'");
  await client.query("DELETE FROM task");
  await program.end();
});

it("says of a locked table that it is locked, and of the others how they are", async () => {
  const { program, web } = await start([
    { data, user },
    { data, user, table: "aside" },
  ]);
  await client.query("BEGIN; LOCK TABLE aside IN ACCESS EXCLUSIVE MODE");
  // What was known is kept for a second.
  while ((await known(web))["aside"] !== "somebody holds a lock on it: try again");
  assert.equal((await known(web))["task"], 0);
  assert.equal(await scraped(web, "pg_task_scrape_error", "aside"), 1);
  assert.equal(await scraped(web, "pg_task_scrape_error", "task"), 0);
  assert.equal(await scraped(web, "pg_task_backlog", "task"), 0);
  await client.query("COMMIT");
  while ((await known(web))["aside"] !== 0);
  await program.end();
});

it("gives up a connection that the network swallowed, and opens another", async () => {
  const proxy = await TcpProxy.to(database.target.port, database.target.host);
  const url = new URL(database.url);
  url.host = `127.0.0.1:${proxy.port}`;
  const { program, web } = await start([
    { data, user },
    { url: url.href, table: "aside" },
  ]);
  const events = await web.events();
  const id = await web.tableId("aside");
  await events.until(new RegExp(`"table":"${id}","live":true`));
  // Two at once, so that both connections are there.
  await Promise.all(["groups", "tasks"].map((what) => web.ask(`/api/tables/${id}/${what}`)));
  assert.equal(proxy.freeze("pg_task web"), 3);
  const [{ status, text }, others] = await Promise.all([
    web.ask(`/api/tables/${id}/groups`),
    known(web),
  ]);
  assert.equal(status, 503);
  assert.match(text, /the server does not answer/);
  assert.equal(others["task"], 0);
  await events.until(new RegExp(`"table":"${id}","live":false`));
  await events.until(new RegExp(`"table":"${id}","live":true`));
  while ((await known(web))["aside"] !== 0);
  await web.get(groupsSchema, `/api/tables/${id}/groups`);
  assert.equal(await scraped(web, "pg_task_scrape_error", "aside"), 0);
  events.end();
  assert.equal((await program.end()).code, 0);
});

it("answers for the others while a server is frozen or restarts, and for all afterwards", async () => {
  const server = await OwnServer.at(await freePort());
  await server.start();
  const { program, web } = await start([
    { data, user },
    { url: server.url, table: "aside" },
  ]);
  const events = await web.events();
  const id = await web.tableId("aside");
  const live = async (is: boolean): Promise<void> =>
    await events.until(new RegExp(`"table":"${id}","live":${is}`));
  await live(true);
  assert.deepEqual(await known(web), { task: 0, aside: 0 });

  await server.freezeAll();
  await live(false);
  // Many ask at once.
  const silent = await Promise.all([
    ...Array.from({ length: 70 }, () => web.ask(`/api/tables/${id}/groups`)),
    web.ask(`/api/tables/${id}/tasks/1/stop`, { method: "POST" }),
  ]);
  for (const { status, text } of silent) {
    assert.equal(status, 503);
    assert.match(text, /does not answer|too many requests/);
  }
  const told = await known(web);
  assert.equal(told["task"], 0);
  assert.match(String(told["aside"]), /does not answer/);
  assert.equal(await scraped(web, "pg_task_scrape_error", "aside"), 1);
  assert.equal(await scraped(web, "pg_task_scrape_error", "task"), 0);
  server.thaw();
  await live(true);
  while ((await known(web))["aside"] !== 0);
  assert.equal((await web.ask(`/api/tables/${id}/groups`)).status, 200);

  await server.stop();
  await live(false);
  while (!/ECONNREFUSED|ended/.test(String((await known(web))["aside"])));
  assert.equal((await known(web))["task"], 0);
  await server.start();
  await live(true);
  while ((await known(web))["aside"] !== 0);
  assert.equal(await scraped(web, "pg_task_scrape_error", "aside"), 0);

  await server.freezeAll();
  void web.ask(`/api/tables/${id}/groups`).catch(() => {});
  assert.equal((await program.end()).code, 0);
  events.end();
  server.thaw();
});

it("ends a stream when the configuration has other tables, so that no one is taken for quiet", async () => {
  const { program, web } = await start([{ data, user }]);
  const events = await web.events();
  await events.until(/event: live/);
  await replaceConfig(program, {
    url: database.url,
    "pg_http.listen": "127.0.0.1:0",
    "pg_http.token": token,
    "pg_task.json": [
      { data, user },
      { data, user, table: "aside" },
    ],
  });
  await assert.rejects(events.until(/event: never/), /the stream ended/);
  const again = await web.events();
  await again.until(new RegExp(`"table":"${await web.tableId("aside")}","live":true`));
  again.end();
  await program.end();
});
