import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { it } from "node:test";
import { healthSchema } from "../../../src/web/api/schemas.js";
import { createDatabase } from "../../support/database.js";
import { PgTask, startPgTask } from "../../support/pgTask.js";
import { startWeb } from "../../support/startWeb.js";
import { untyped } from "../../support/untyped.js";
import { insertTask, waitForRow, waitForState } from "../../support/tasks.js";
import { occupyPort, token, Web } from "../../support/web.js";

const blocked = new PgTask();
const other = await createDatabase();
const { client, config, pgTask, web, table } = await startWeb();

it("is off by default", async () => {
  const without = await startPgTask({ url: config["url"] });
  await without.stop();
  assert.deepEqual(without.linesMatching("page"), []);
});

it("reports health: not ready, leader, standby", async () => {
  const { port } = await occupyPort();
  const lost = new PgTask();
  lost.launch({ ...config, url: `postgresql://postgres@127.0.0.1:${port}/postgres?connect_timeout=1` });
  const seeking = await Web.connect(lost);
  const notReady = await seeking.requestWithoutToken("/health");
  assert.equal(notReady.status, 503);
  assert.equal(healthSchema.parse(JSON.parse(notReady.text)).role, "seeking");
  assert.equal((await seeking.requestWithoutToken("/ready")).status, 503);
  await lost.stop();

  const standby = await startPgTask(config);
  const second = await Web.connect(standby);
  for (const [page, expected] of [
    [web, ["leader", "working"]],
    [second, ["standby", null]],
  ] as const) {
    const { status, text } = await page.requestWithoutToken("/health");
    assert.equal(status, 200);
    const { role, managers } = healthSchema.parse(JSON.parse(text));
    assert.deepEqual([role, managers[0]?.manager?.state ?? null], expected);
    assert.equal((await page.requestWithoutToken("/ready")).text, "ready\n");
  }
  await standby.stop();
});

it("has no connection while nobody is watching, and closes idle ones", async () => {
  const own = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pg_task web'";
  const connections = async (): Promise<number> => (await client.query(own)).rows.length;
  const none = `${own} HAVING count(*) = 0`;
  await waitForRow(client, none);
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
  await waitForRow(client, none);
  assert.equal((await web.request("/api/tables")).status, 200);
  assert.equal(await connections(), 1);
  await waitForRow(client, none);
});

it("rejects requests without the token, and cross-site requests", async () => {
  const id = await insertTask(client, "SELECT 1");
  await waitForState(client, id, "DONE");
  const wrong = { headers: { Authorization: `Bearer ${token}x` } };
  assert.equal((await web.requestWithoutToken("/api/tables", wrong)).status, 401);
  const retry = `/api/tables/${table}/tasks/${id}/retry`;
  assert.equal((await web.requestWithoutToken(retry, { method: "POST" })).status, 401);
  assert.equal((await web.requestWithoutToken(`${retry}?token=${token}`, { method: "POST" })).status, 401);
  assert.equal((await web.request(retry)).status, 405, "a GET changes nothing");
  assert.equal((await web.request(retry, { method: "POST", headers: { Origin: "http://evil.example" } })).status, 403);
  assert.equal((await waitForState(client, id, "DONE")).crash, 0);

  assert.equal(await web.statusForHost("rebound.example:8765"), 403);
  assert.equal(await web.statusForHost("localhost:1"), 200);

  const page = await web.requestWithoutToken("/");
  const policy = page.headers.get("content-security-policy") ?? "";
  assert.match(policy, /default-src 'none'/);
  assert.doesNotMatch(policy, /unsafe/);
  assert.equal(page.headers.get("x-content-type-options"), "nosniff");
  const scripts = [...page.text.matchAll(/<script([^>]*)>([^]*?)<\/script>/g)];
  const inline = scripts.filter(([, attributes = ""]) => !attributes.includes("src="));
  for (const [, , script = ""] of inline) {
    const hash = createHash("sha256").update(script).digest("base64");
    assert.ok(policy.includes(`'sha256-${hash}'`), script);
  }
  assert.equal(inline.length, 1);
  assert.doesNotMatch(JSON.stringify(pgTask.lines), new RegExp(token));
});

it("applies a new token and address on reload, and generates a token on loopback", async () => {
  await pgTask.reload(untyped({ ...config, "pg_http.token": "another-token-0123" }));
  const again = await Web.connect(pgTask, "another-token-0123", 2);
  assert.equal((await again.request("/api/tables")).status, 200);
  const old = { headers: { Authorization: `Bearer ${token}` } };
  assert.equal((await again.requestWithoutToken("/api/tables", old)).status, 401);

  const { "pg_http.token": _, ...without } = config;
  await pgTask.reload(untyped(without));
  const generated = await Web.connect(pgTask, "", 3);
  assert.ok(generated.token.length >= 32);
  assert.equal((await generated.request("/api/tables")).status, 200);
  assert.equal((await generated.requestWithoutToken("/api/tables")).status, 401);

  await pgTask.reload(untyped({ ...config, "pg_http.listen": "" }));
  await assert.rejects(async () => {
    for (;;) await generated.requestWithoutToken("/health");
  });
});

it("retries an address in use, while tasks run", async () => {
  const { server: blocker, port } = await occupyPort();
  await blocked.start({ ...config, url: other.url, "pg_http.listen": `127.0.0.1:${port}` });
  const unavailable = await blocked.line("HTTP address unavailable, retrying");
  assert.equal(unavailable["reason"], "another process uses this address (EADDRINUSE)");
  const connection = await other.connect();
  const id = await insertTask(connection, "SELECT 1");
  await waitForState(connection, id, "DONE");
  blocker.close();
  assert.equal((await (await Web.connect(blocked)).requestWithoutToken("/ready")).status, 200);
  assert.equal(blocked.linesMatching("HTTP address unavailable, retrying").length, 1);
});
