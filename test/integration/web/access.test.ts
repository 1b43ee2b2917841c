import assert from "node:assert/strict";
import { request } from "node:http";
import { it } from "node:test";
import { healthSchema } from "../../../src/web/api/schemas.js";
import { replaceConfig } from "../../support/configFile.js";
import { createDatabase } from "../../support/database.js";
import { startProcess, type TestProcess } from "../../support/process.js";
import { insertTask, waitForState } from "../../support/waitFor.js";
import { token, Web } from "../../support/web.js";

const database = await createDatabase();
const client = await database.connect();
const readOnly = "only-for-reading-0123";
/** An address of the loopback interface that pg-task does not know as such. */
const beyondLoopback = "127.1:0";
const config = { url: database.url, "pg_http.listen": beyondLoopback, "pg_http.token": token };

async function serve(parameters: object): Promise<{ readonly program: TestProcess; readonly web: Web }> {
  const program = await startProcess({ config: { ...config, ...parameters } });
  const web = await Web.connect(program);
  await program.line("ready");
  return { program, web };
}

/** Asks for an address as if the server had another host name. Fetch cannot do this. */
function statusForHost(web: Web, host: string, path = "/api/openapi.json"): Promise<number> {
  return new Promise((resolve, reject) => {
    const get = request(`${web.url}${path}`, { headers: { Host: host } }, (answer) => {
      answer.resume();
      resolve(answer.statusCode ?? 0);
    });
    get.once("error", reject);
    get.end();
  });
}

const bearer = (given: string): RequestInit => ({ headers: { Authorization: `Bearer ${given}` } });

it("tells other machines without a token only whether it is ready", async () => {
  const { program, web } = await serve({ "pg_http.readonly": readOnly });
  const health = await web.requestWithoutToken("/health");
  assert.deepEqual([health.status, JSON.parse(health.text)], [200, { status: "ready" }]);
  assert.equal((await web.requestWithoutToken("/health", bearer("wrong-token-01234"))).text, health.text);
  const ready = await web.requestWithoutToken("/ready");
  assert.deepEqual([ready.status, ready.text], [200, "ready\n"]);
  const metrics = await web.requestWithoutToken("/metrics");
  assert.deepEqual([metrics.status, metrics.headers.get("www-authenticate")], [401, 'Bearer realm="pg-task"']);
  assert.doesNotMatch(metrics.text, /pg_task_ready/);
  for (const given of [token, readOnly]) {
    assert.match((await web.requestWithoutToken("/metrics", bearer(given))).text, /^pg_task_ready 1$/m);
    const { managers } = healthSchema.parse(JSON.parse((await web.requestWithoutToken("/health", bearer(given))).text));
    assert.equal(managers[0]?.table, "task");
  }
  await program.end();
});

it("says why it is not ready only to those who may know", async () => {
  const taken = await createDatabase();
  const other = await taken.connect();
  await other.query("DROP TABLE IF EXISTS task CASCADE; CREATE TABLE task (secret_column text)");
  for (const [parameters, open] of [
    [{ "pg_http.listen": beyondLoopback }, false],
    [{ "pg_http.listen": "127.0.0.1:0" }, true],
    [{ "pg_http.listen": "127.0.0.1:0", "pg_http.hosts": "tasks.example.com" }, false],
  ] as const) {
    const { program, web } = await serve({ url: taken.url, ...parameters });
    const why = "not ready: no manager serves its table\n";
    assert.equal((await web.requestWithoutToken("/ready")).text, open ? why : "not ready\n");
    assert.equal((await web.request("/ready")).text, why);
    const health = (await web.requestWithoutToken("/health")).text;
    assert.equal(health.includes("managers"), open);
    assert.doesNotMatch(health, /secret_column|reason":"/);
    assert.equal((await web.requestWithoutToken("/metrics")).status, open ? 200 : 401);
    await program.end();
  }
});

it("reads everything with the read-only token, and changes nothing", async () => {
  const { program, web } = await serve({ "pg_http.readonly": readOnly });
  const id = await insertTask(client, "SELECT 1");
  await waitForState(client, id, "DONE");
  const table = await web.tableId();
  const paths = [
    "/api/tables",
    `/api/tables/${table}`,
    `/api/tables/${table}/tasks`,
    `/api/tables/${table}/tasks/${id}`,
  ];
  for (const path of paths) {
    const read = await web.requestWithoutToken(path, bearer(readOnly));
    assert.deepEqual([read.status, read.headers.get("pg-task-access")], [200, "readonly"]);
    assert.equal((await web.request(path)).headers.get("pg-task-access"), "full");
  }
  for (const action of ["stop", "retry", "run-now", "pause", "resume"]) {
    const path = `/api/tables/${table}/tasks/${id}/${action}`;
    const refused = await web.requestWithoutToken(path, { method: "POST", ...bearer(readOnly) });
    const { code, detail } = JSON.parse(refused.text);
    assert.deepEqual(
      [refused.status, code, detail],
      [403, "FORBIDDEN", "this token allows only reading: changes need the token pg_http.token"],
    );
  }
  const unchanged = await client.query("SELECT state::text, attempt FROM task WHERE id = $1", [id]);
  assert.deepEqual(unchanged.rows, [{ state: "DONE", attempt: null }]);
  assert.equal((await web.request(`/api/tables/${table}/tasks/${id}/retry`, { method: "POST" })).status, 200);

  await replaceConfig(program, { ...config, "pg_http.readonly": `${readOnly}-4` });
  const again = await Web.connect(program, token, 2);
  assert.equal((await again.requestWithoutToken("/api/tables", bearer(readOnly))).status, 401);
  assert.equal((await again.requestWithoutToken("/api/tables", bearer(`${readOnly}-4`))).status, 200);
  await program.end();
  assert.doesNotMatch(program.output.stdout, new RegExp(`${readOnly}|${token}`));
});

it("answers only for the host names that it is given", async () => {
  const { program, web } = await serve({ "pg_http.hosts": "tasks.example.com,Other.Example" });
  for (const host of [
    "tasks.example.com",
    "TASKS.example.com:8443",
    "other.example",
    "localhost",
    "10.1.2.3:80",
    "[::1]",
  ]) {
    assert.equal(await statusForHost(web, host), 200, host);
  }
  for (const host of ["rebound.example:8765", "example.com", "tasks.example.com.evil.example", "x.tasks.example.com"]) {
    for (const path of ["/", "/health", "/ready", "/metrics", "/api/openapi.json"]) {
      assert.equal(await statusForHost(web, host, path), 403, `${host}${path}`);
    }
  }
  await replaceConfig(program, { ...config, "pg_http.hosts": "rebound.example" });
  await program.line("configuration reloaded");
  assert.equal(await statusForHost(web, "rebound.example"), 200);
  assert.equal(await statusForHost(web, "tasks.example.com"), 403);
  await replaceConfig(program, config);
  await program.line("configuration reloaded", 2);
  assert.equal(await statusForHost(web, "any.example"), 200, "without a list, every name is answered");
  await program.end();
});

it("answers on loopback also for the names of a proxy on the same machine", async () => {
  const { program, web } = await serve({ "pg_http.listen": "127.0.0.1:0", "pg_http.hosts": "tasks.example.com" });
  assert.equal(await statusForHost(web, "tasks.example.com"), 200);
  assert.equal(await statusForHost(web, "rebound.example"), 403);
  assert.equal(await statusForHost(web, "10.1.2.3"), 403);
  await program.end();
});

it("does not start with a short token", async () => {
  const program = await startProcess({ config: { ...config, "pg_http.token": "hunter2" } });
  assert.equal((await program.exit).code, 2);
  assert.match(
    program.output.stderr + program.output.stdout,
    /pg_http\.token: expected a token of at least 16 visible/,
  );
  assert.doesNotMatch(program.output.stderr + program.output.stdout, /hunter2/);
});
