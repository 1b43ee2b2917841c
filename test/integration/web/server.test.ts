import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { request } from "node:http";
import { beforeEach, it } from "node:test";
import { healthSchema } from "../../../src/web/api/schemas.js";
import { replaceConfig } from "../../support/configFile.js";
import { createDatabase } from "../../support/database.js";
import { doctor } from "../../support/doctor.js";
import { startProcess } from "../../support/process.js";
import { insertTask, waitForRow, waitForRun, waitForState } from "../../support/waitFor.js";
import { occupyPort, token, Web } from "../../support/web.js";

const database = await createDatabase();
const client = await database.connect();
const config = {
  url: database.url,
  "pg_http.listen": "127.0.0.1:0",
  "pg_http.token": token,
};

beforeEach(() => client.query("DELETE FROM task"));

/** Returns the value of the first matching sample in a scrape. */
function value(text: string, name: string, labels = ""): number | null {
  const line = text.split("\n").find((each) => each.startsWith(name) && each.includes(labels));
  return line === undefined ? null : Number(line.split(" ").at(-1));
}

async function scrape(web: Web): Promise<string> {
  const { status, text } = await web.requestWithoutToken("/metrics");
  assert.equal(status, 200);
  return text;
}

it("is off by default", async () => {
  const program = await startProcess({ config: { url: database.url } });
  await program.line("ready");
  assert.deepEqual(program.linesMatching("page"), []);
  assert.equal((await program.end()).code, 0);
});

it("is on with the embedded server, on loopback, with a random token", async () => {
  const program = await startProcess({ args: ["start", "--embedded"] });
  const web = await Web.connect(program, "");
  await program.line("ready");
  assert.equal(new URL(web.url).hostname, "127.0.0.1");
  assert.ok(web.token.length >= 20, web.token);
  assert.equal((await web.requestWithoutToken("/api/tables")).status, 401);
  assert.equal((await web.request("/api/tables")).status, 200);
  assert.equal((await program.end()).code, 0);
});

it("reports health: not ready, leader, standby", async () => {
  const { port } = await occupyPort();
  const lost = await startProcess({
    config: {
      ...config,
      url: `postgresql://postgres@127.0.0.1:${port}/postgres?connect_timeout=1`,
    },
  });
  const seeking = await Web.connect(lost);
  const notReady = await seeking.requestWithoutToken("/health");
  assert.equal(notReady.status, 503);
  assert.equal(healthSchema.parse(JSON.parse(notReady.text)).role, "seeking");
  assert.equal((await seeking.requestWithoutToken("/ready")).status, 503);
  await lost.end();

  const leader = await startProcess({ config });
  const standby = await startProcess({ config: { ...config }, forked: true });
  const first = await Web.connect(leader);
  const second = await Web.connect(standby);
  await Promise.race([leader.line("ready"), standby.line("ready")]);
  await Promise.all([leader, standby].map((one) => one.line(/^(ready|standby)$/)));
  const answers = await Promise.all([first, second].map((web) => web.requestWithoutToken("/health")));
  assert.deepEqual(
    answers.map(({ status }) => status),
    [200, 200],
  );
  const healths = answers.map(({ text }) => healthSchema.parse(JSON.parse(text)));
  assert.deepEqual(new Set(healths.map(({ role }) => role)), new Set(["leader", "standby"]));
  const states = healths.map(({ managers }) => managers[0]?.manager?.state ?? null);
  assert.deepEqual(new Set(states), new Set(["working", null]));
  assert.equal((await first.requestWithoutToken("/ready")).text, "ready\n");
  await Promise.all([leader.end(), standby.end()]);
});

it("is not ready while no manager serves its table, and tells why only to those with the token", async () => {
  await client.query("CREATE SCHEMA other; CREATE TABLE other.task (secret_column text)");
  const entry = { data: database.target.database, user: database.target.user };
  const program = await startProcess({ config: { ...config, "pg_task.json": [{ ...entry, schema: "other" }] } });
  const web = await Web.connect(program);
  const ready = await program.line("ready");
  assert.equal(ready["serving"], 0);
  assert.match(String(ready["waiting"]), /other\.task$/);
  const unready = await web.requestWithoutToken("/ready");
  assert.deepEqual([unready.status, unready.text], [503, "not ready: no manager serves its table\n"]);
  const untrusted = await web.requestWithoutToken("/health");
  const wrong = await web.requestWithoutToken("/health", { headers: { Authorization: "Bearer guess" } });
  const trusted = await web.request("/health");
  assert.deepEqual([untrusted.status, wrong.status, trusted.status], [200, 200, 200]);
  const managers = [untrusted, wrong, trusted].map(
    ({ text }) => healthSchema.parse(JSON.parse(text)).managers[0]?.manager,
  );
  for (const manager of managers) {
    assert.deepEqual([manager?.state, manager?.code], ["waiting", "SCHEMA_INCOMPATIBLE"]);
  }
  assert.deepEqual([managers[0]?.reason, managers[1]?.reason], [null, null]);
  assert.match(managers[2]?.reason ?? "", /other/);
  assert.doesNotMatch(untrusted.text + wrong.text, /column/);
  const { code, lines } = await doctor({}, program.cwd);
  assert.notEqual(code, 0);
  assert.ok(lines.some(({ level }) => level === "fail"));

  // One of two entries is enough.
  await replaceConfig(program, { ...config, "pg_task.json": [{ ...entry, schema: "other" }, entry] });
  await program.line("serving table");
  // The manager's thread logs this before the supervisor has heard of it.
  while ((await web.requestWithoutToken("/ready")).status !== 200);
  await program.end();
  await client.query("DROP SCHEMA other CASCADE");
});

it("exports counters, histograms and current numbers for Prometheus", async () => {
  const program = await startProcess({ config });
  const web = await Web.connect(program);
  await program.line("ready");
  const done = await insertTask(client, "SELECT 1");
  const failed = await insertTask(client, "SELECT 1/0");
  await client.query("INSERT INTO task (input, plan) VALUES ('SELECT 2', now() + interval '1 day')");
  await waitForState(client, done, "DONE");
  await waitForState(client, failed, "FAIL");
  // Managers report their counts in batches, so it takes a while until all are counted.
  let text = "";
  do text = await scrape(web);
  while (value(text, "pg_task_failed_total{") !== 1 || value(text, "pg_task_finished_total{") !== 1);
  assert.equal(value(text, "pg_task_started_total{"), 2);
  assert.equal(value(text, "pg_task_run_seconds_count{"), 2);
  assert.equal(value(text, "pg_task_run_seconds_bucket{", 'le="+Inf"'), 2);
  assert.equal(value(text, "pg_task_queue_wait_seconds_count{"), 2);
  assert.equal(value(text, "pg_task_claim_seconds_bucket{", 'le="0.001"') !== null, true);
  assert.equal(value(text, "pg_task_leader "), 1);
  assert.equal(value(text, "pg_task_manager_up{"), 1);
  assert.equal(value(text, "pg_task_connections{", 'role="manager"'), 1);
  assert.equal(text.includes("pg_task_retries_total{"), false);
  await client.query("INSERT INTO task (input, retry, backoff) VALUES ('SELECT 2/0', 2, '1 ms')");
  do text = await scrape(web);
  while (value(text, "pg_task_retries_total{", 'class="22"') !== 2);
  // The summary is cached for a second.
  do text = await scrape(web);
  while (value(text, "pg_task_tasks{", 'state="FAIL"') !== 2);
  assert.equal(value(text, "pg_task_tasks{", 'state="PLAN"'), 1);
  assert.equal(value(text, "pg_task_backlog{"), 0);
  // The measurement starts at the first scrape.
  do text = await scrape(web);
  while (value(text, "pg_task_event_loop_delay_p99_seconds ") === null);
  await program.end();
});

it("counts a task that took its own session down as failed, once", async () => {
  const program = await startProcess({ config: { ...config, "pg_task.crash": 2 } });
  const web = await Web.connect(program);
  await program.line("ready");
  const id = await insertTask(client, "SELECT pg_terminate_backend(pg_backend_pid())");
  await waitForState(client, id, "FAIL");
  let text = "";
  do text = await scrape(web);
  while (value(text, "pg_task_rescued_total{") !== 2);
  assert.equal(value(text, "pg_task_failed_total{", 'schema="public",table="task"'), 1);
  assert.deepEqual([value(text, "pg_task_finished_total{"), value(text, "pg_task_gone_total{")], [0, 0]);
  await program.end();
});

it("counts tasks that wait for others, and those that are released", async () => {
  const program = await startProcess({ config });
  const web = await Web.connect(program);
  await program.line("ready");
  await client.query("SELECT pg_advisory_lock(2)");
  const awaited = await insertTask(client, "SELECT pg_advisory_lock_shared(2)", "awaited");
  const failing = await insertTask(client, "SELECT 1/0, pg_advisory_lock_shared(2)", "failing");
  await client.query(
    "INSERT INTO task (input, after) VALUES ('SELECT 1', ARRAY[$1::bigint]), ('SELECT 2', ARRAY[$2::bigint])",
    [awaited, failing],
  );
  let text = "";
  do text = await scrape(web);
  while (value(text, "pg_task_held_total{") !== 2);
  assert.equal(value(text, "pg_task_released_total{"), 0);
  await client.query("SELECT pg_advisory_unlock(2)");
  do text = await scrape(web);
  while (value(text, "pg_task_released_total{") !== 1 || value(text, "pg_task_gone_total{") !== 1);
  await program.end();
});

it("counts rescued tasks, rescues and reconnections", async () => {
  const program = await startProcess({ config });
  const web = await Web.connect(program);
  await program.line("ready");
  await client.query("SELECT pg_advisory_lock(1)");
  const id = await insertTask(client, "SELECT pg_advisory_lock_shared(1)");
  const { pid } = await waitForRun(client, id);
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

it("has no connection while nobody is watching, and closes idle ones", async () => {
  const program = await startProcess({ config });
  const web = await Web.connect(program);
  await program.line("ready");
  const connections = async (): Promise<number> => {
    const { rows } = await client.query(
      "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pg_task web'",
    );
    return rows.length;
  };
  await web.requestWithoutToken("/health");
  await web.requestWithoutToken("/");
  assert.equal((await web.requestWithoutToken("/api/tables")).status, 401);
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
  assert.equal((await web.request("/api/tables")).status, 200);
  assert.equal(await connections(), 1);
  await waitForRow(client, none);
  await program.end();
});

it("rejects requests without the token, and cross-site requests", async () => {
  const program = await startProcess({ config });
  const web = await Web.connect(program);
  await program.line("ready");
  const id = await insertTask(client, "SELECT 1");
  await waitForState(client, id, "DONE");
  const table = await web.tableId();
  for (const path of ["/api/tables", "/api/events", `/api/tables/${table}/tasks`]) {
    assert.equal((await web.requestWithoutToken(path)).status, 401, path);
    const wrong = { headers: { Authorization: `Bearer ${token}x` } };
    assert.equal((await web.requestWithoutToken(path, wrong)).status, 401, path);
  }
  const retry = `/api/tables/${table}/tasks/${id}/retry`;
  assert.equal((await web.requestWithoutToken(retry, { method: "POST" })).status, 401);
  assert.equal((await web.requestWithoutToken(`${retry}?token=${token}`, { method: "POST" })).status, 401);
  assert.equal((await web.request(retry)).status, 405, "a GET changes nothing");
  assert.equal((await web.request(retry, { method: "POST", headers: { Origin: "http://evil.example" } })).status, 403);
  assert.equal((await waitForState(client, id, "DONE")).crash, 0);

  // The Host header cannot be set with fetch.
  const statusForHost = (host: string): Promise<number> =>
    new Promise((resolve, reject) => {
      const get = request(`${web.url}/health`, { headers: { Host: host } }, (answer) => {
        answer.resume();
        resolve(answer.statusCode ?? 0);
      });
      get.once("error", reject);
      get.end();
    });
  assert.equal(await statusForHost("rebound.example:8765"), 403);
  assert.equal(await statusForHost("localhost:1"), 200);

  const page = await web.requestWithoutToken("/");
  assert.match(page.headers.get("content-security-policy") ?? "", /default-src 'none'/);
  assert.doesNotMatch(page.headers.get("content-security-policy") ?? "", /unsafe/);
  assert.equal(page.headers.get("x-content-type-options"), "nosniff");
  const policy = page.headers.get("content-security-policy") ?? "";
  const scripts = [...page.text.matchAll(/<script([^>]*)>([^]*?)<\/script>/g)];
  const inline = scripts.filter(([, attributes = ""]) => !attributes.includes("src="));
  for (const [, , script = ""] of inline) {
    const hash = createHash("sha256").update(script).digest("base64");
    assert.ok(policy.includes(`'sha256-${hash}'`), script);
  }
  assert.equal(inline.length, 2);
  await program.end();
  assert.doesNotMatch(program.output.stdout, new RegExp(token));
});

it("generates a token on loopback and logs it in the address", async () => {
  const { "pg_http.token": _, ...without } = config;
  const program = await startProcess({ config: without });
  const web = await Web.connect(program);
  assert.ok(web.token.length >= 32);
  assert.equal((await web.request("/api/tables")).status, 200);
  assert.equal((await web.requestWithoutToken("/api/tables")).status, 401);
  await program.end();
});

it("applies a new token and address on reload", async () => {
  const program = await startProcess({ config });
  const web = await Web.connect(program);
  await program.line("ready");
  await replaceConfig(program, { ...config, "pg_http.token": "another-token-0123" });
  const again = await Web.connect(program, "another-token-0123", 2);
  assert.equal((await again.request("/api/tables")).status, 200);
  assert.equal(
    (
      await again.requestWithoutToken("/api/tables", {
        headers: { Authorization: `Bearer ${web.token}` },
      })
    ).status,
    401,
  );
  await replaceConfig(program, { ...config, "pg_http.listen": "" });
  await program.line("configuration reloaded", 2);
  await assert.rejects(async () => {
    for (;;) await again.request("/api/tables");
  });
  await program.end();
});

it("retries an address in use, while tasks run", async () => {
  const { server: blocker, port } = await occupyPort();
  const program = await startProcess({
    config: { ...config, "pg_http.listen": `127.0.0.1:${port}` },
  });
  const unavailable = await program.line("HTTP address unavailable, retrying");
  assert.equal(unavailable["reason"], "another process uses this address (EADDRINUSE)");
  await program.line("ready");
  const id = await insertTask(client, "SELECT 1");
  await waitForState(client, id, "DONE");
  blocker.close();
  assert.equal((await (await Web.connect(program)).requestWithoutToken("/ready")).status, 200);
  assert.equal(program.linesMatching("HTTP address unavailable, retrying").length, 1);
  await program.end();
});
