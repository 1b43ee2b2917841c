import assert from "node:assert/strict";
import { request } from "node:http";
import { beforeEach, it } from "node:test";
import { healthSchema } from "../../../src/web/api/schemas.js";
import { replaceConfig } from "../../support/configFile.js";
import { createDatabase } from "../../support/database.js";
import { startProcess } from "../../support/process.js";
import { insertTask, waitForRow, waitForState } from "../../support/waitFor.js";
import { portTaker, token, Web } from "../../support/web.js";

const database = await createDatabase();
const client = await database.connect();
const config = {
  url: database.url,
  "pg_http.listen": "127.0.0.1:0",
  "pg_http.token": token,
};

beforeEach(() => client.query("DELETE FROM task"));

/** The number of the first line of such a metric. */
function value(text: string, name: string, labels = ""): number | null {
  const line = text.split("\n").find((each) => each.startsWith(name) && each.includes(labels));
  return line === undefined ? null : Number(line.split(" ").at(-1));
}

async function scrape(web: Web): Promise<string> {
  const { status, text } = await web.anonymously("/metrics");
  assert.equal(status, 200);
  return text;
}

it("is off where nothing is said of it", async () => {
  const program = await startProcess({ config: { url: database.url } });
  await program.line("ready");
  assert.deepEqual(program.said("page"), []);
  assert.equal((await program.end()).code, 0);
});

it("is on with the embedded server, on loopback, with a token of its own", async () => {
  const program = await startProcess();
  const web = await Web.of(program, "");
  await program.line("ready");
  assert.equal(new URL(web.url).hostname, "127.0.0.1");
  assert.ok(web.token.length >= 20, web.token);
  assert.equal((await web.anonymously("/api/tables")).status, 401);
  assert.equal((await web.ask("/api/tables")).status, 200);
  assert.equal((await program.end()).code, 0);
});

it("says how the process is: not ready, leader, standby", async () => {
  const { port } = await portTaker();
  const lost = await startProcess({
    config: {
      ...config,
      url: `postgresql://postgres@127.0.0.1:${port}/postgres?connect_timeout=1`,
    },
  });
  const seeking = await Web.of(lost);
  const notReady = await seeking.anonymously("/health");
  assert.equal(notReady.status, 503);
  assert.equal(healthSchema.parse(JSON.parse(notReady.text)).role, "seeking");
  assert.equal((await seeking.anonymously("/ready")).status, 503);
  await lost.end();

  const leader = await startProcess({ config });
  const standby = await startProcess({ config: { ...config }, forked: true });
  const first = await Web.of(leader);
  const second = await Web.of(standby);
  await Promise.race([leader.line("ready"), standby.line("ready")]);
  await Promise.all([leader, standby].map((one) => one.line(/^(ready|standby)$/)));
  const answers = await Promise.all([first, second].map((web) => web.anonymously("/health")));
  assert.deepEqual(
    answers.map(({ status }) => status),
    [200, 200],
  );
  const healths = answers.map(({ text }) => healthSchema.parse(JSON.parse(text)));
  assert.deepEqual(new Set(healths.map(({ role }) => role)), new Set(["leader", "standby"]));
  const states = healths.map(({ managers }) => managers[0]?.manager?.state ?? null);
  assert.deepEqual(new Set(states), new Set(["working", null]));
  assert.equal((await first.anonymously("/ready")).text, "ready\n");
  await Promise.all([leader.end(), standby.end()]);
});

it("tells Prometheus what was started, finished, failed, and how things are", async () => {
  const program = await startProcess({ config });
  const web = await Web.of(program);
  await program.line("ready");
  const done = await insertTask(client, "SELECT 1");
  const failed = await insertTask(client, "SELECT 1/0");
  await client.query(
    "INSERT INTO task (input, plan) VALUES ('SELECT 2', now() + interval '1 day')",
  );
  await waitForState(client, done, "DONE");
  await waitForState(client, failed, "FAIL");
  // Managers report in batches.
  let text = "";
  do text = await scrape(web);
  while (
    value(text, "pg_task_failed_total{") !== 1 ||
    value(text, "pg_task_finished_total{") !== 1
  );
  assert.equal(value(text, "pg_task_started_total{"), 2);
  assert.equal(value(text, "pg_task_run_seconds_count{"), 2);
  assert.equal(value(text, "pg_task_run_seconds_bucket{", 'le="+Inf"'), 2);
  assert.equal(value(text, "pg_task_claim_seconds_bucket{", 'le="0.001"') !== null, true);
  assert.equal(value(text, "pg_task_leader "), 1);
  assert.equal(value(text, "pg_task_manager_up{"), 1);
  assert.equal(value(text, "pg_task_connections{", 'role="manager"'), 1);
  // The numbers of the table are kept for a second.
  do text = await scrape(web);
  while (value(text, "pg_task_tasks{", 'state="FAIL"') !== 1);
  assert.equal(value(text, "pg_task_tasks{", 'state="PLAN"'), 1);
  assert.equal(value(text, "pg_task_backlog{"), 0);
  // Measured from the first scrape on.
  do text = await scrape(web);
  while (value(text, "pg_task_event_loop_delay_seconds{", 'quantile="0.99"') === null);
  await program.end();
});

it("counts what was rescued, and how often a manager connected again", async () => {
  const program = await startProcess({ config });
  const web = await Web.of(program);
  await program.line("ready");
  await client.query("SELECT pg_advisory_lock(1)");
  const id = await insertTask(client, "SELECT pg_advisory_lock_shared(1)");
  const { pid } = await waitForState(client, id, "WORK");
  await client.query("SELECT pg_terminate_backend($1)", [pid]);
  await program.line(/^orphaned tasks rescued/);
  await client.query("SELECT pg_advisory_unlock(1)");
  await waitForState(client, id, "DONE");
  await client.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'pg_work %'`,
  );
  const expected = [
    /^pg_task_rescued_total\{.*\} 1$/m,
    /^pg_task_rescues_total\{.*\} 1$/m,
    /^pg_task_reconnects_total\{.*\} 1$/m,
  ];
  let text = "";
  do text = await scrape(web);
  while (!expected.every((line) => line.test(text)));
  await program.end();
});

it("does nothing to the database while nobody looks, and closes what it opened for somebody", async () => {
  const program = await startProcess({ config });
  const web = await Web.of(program);
  await program.line("ready");
  const connections = async (): Promise<number> => {
    const { rows } = await client.query(
      "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pg_task web'",
    );
    return rows.length;
  };
  await web.anonymously("/health");
  await web.anonymously("/");
  assert.equal((await web.anonymously("/api/tables")).status, 401);
  assert.equal(await connections(), 0);
  const events = await web.events();
  await events.until(/event: changed/);
  assert.equal(await connections(), 1);
  await insertTask(client, "SELECT 1");
  await events.until(/event: changed/);
  events.end();
  const none =
    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pg_task web' HAVING count(*) = 0";
  await waitForRow(client, none);
  assert.equal((await web.ask("/api/tables")).status, 200);
  assert.equal(await connections(), 1);
  await waitForRow(client, none);
  await program.end();
});

it("lets nobody in without the token, and no other site's page at all", async () => {
  const program = await startProcess({ config });
  const web = await Web.of(program);
  await program.line("ready");
  const id = await insertTask(client, "SELECT 1");
  await waitForState(client, id, "DONE");
  const table = await web.tableId();
  for (const path of ["/api/tables", "/api/events", `/api/tables/${table}/tasks`]) {
    assert.equal((await web.anonymously(path)).status, 401, path);
    const wrong = { headers: { Authorization: `Bearer ${token}x` } };
    assert.equal((await web.anonymously(path, wrong)).status, 401, path);
  }
  const retry = `/api/tables/${table}/tasks/${id}/retry`;
  assert.equal((await web.anonymously(retry, { method: "POST" })).status, 401);
  assert.equal((await web.anonymously(`${retry}?token=${token}`, { method: "POST" })).status, 401);
  assert.equal((await web.ask(retry)).status, 404, "a GET changes nothing");
  assert.equal(
    (await web.ask(retry, { method: "POST", headers: { Origin: "http://evil.example" } })).status,
    403,
  );
  assert.equal((await waitForState(client, id, "DONE")).crash, 0);

  // What fetch does not let one say.
  const named = (host: string): Promise<number> =>
    new Promise((resolve, reject) => {
      const asked = request(`${web.url}/health`, { headers: { Host: host } }, (answer) => {
        answer.resume();
        resolve(answer.statusCode ?? 0);
      });
      asked.once("error", reject);
      asked.end();
    });
  assert.equal(await named("rebound.example:8765"), 403);
  assert.equal(await named("localhost:1"), 200);

  const page = await web.anonymously("/");
  assert.match(page.headers.get("content-security-policy") ?? "", /default-src 'none'/);
  assert.doesNotMatch(page.headers.get("content-security-policy") ?? "", /unsafe/);
  assert.equal(page.headers.get("x-content-type-options"), "nosniff");
  const inline = [...page.text.matchAll(/<script([^>]*)>/g)].filter(
    ([, words]) => !/src=/.test(words ?? ""),
  );
  assert.deepEqual(
    inline.map(([, words]) => words),
    [' type="importmap"'],
  );
  await program.end();
  assert.doesNotMatch(program.output.stdout, new RegExp(token));
});

it("makes a token of its own on loopback, and puts it into the address it logs", async () => {
  const { "pg_http.token": _, ...without } = config;
  const program = await startProcess({ config: without });
  const web = await Web.of(program);
  assert.ok(web.token.length >= 32);
  assert.equal((await web.ask("/api/tables")).status, 200);
  assert.equal((await web.anonymously("/api/tables")).status, 401);
  await program.end();
});

it("goes by another token and another address after a reload", async () => {
  const program = await startProcess({ config });
  const web = await Web.of(program);
  await program.line("ready");
  await replaceConfig(program, { ...config, "pg_http.token": "another" });
  const again = await Web.of(program, "another", 2);
  assert.equal((await again.ask("/api/tables")).status, 200);
  assert.equal(
    (await again.anonymously("/api/tables", { headers: { Authorization: `Bearer ${web.token}` } }))
      .status,
    401,
  );
  await replaceConfig(program, { ...config, "pg_http.listen": "" });
  await program.line("configuration reloaded", 2);
  await assert.rejects(async () => {
    for (;;) await again.ask("/api/tables");
  });
  await program.end();
});

it("waits for an address that somebody else has, while tasks run", async () => {
  const { server: other, port } = await portTaker();
  const program = await startProcess({
    config: { ...config, "pg_http.listen": `127.0.0.1:${port}` },
  });
  await program.line("page waits for its address");
  await program.line("ready");
  const id = await insertTask(client, "SELECT 1");
  await waitForState(client, id, "DONE");
  other.close();
  assert.equal((await (await Web.of(program)).anonymously("/ready")).status, 200);
  assert.equal(program.said("page waits for its address").length, 1);
  await program.end();
});
