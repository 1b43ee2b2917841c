import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { it } from "node:test";
import { healthSchema } from "../../../src/web/api/schemas.js";
import { cli } from "../../support/cli.js";
import { createDatabase } from "../../support/database.js";
import { doctor } from "../../support/doctor.js";
import { PgTask } from "../../support/pgTask.js";
import { startWeb } from "../../support/startWeb.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";
import { untyped } from "../../support/untyped.js";
import { insertTask, waitForState } from "../../support/tasks.js";
import { poll, token, Web } from "../../support/web.js";

const readOnly = "only-for-reading-0123";
/** An address of the loopback interface that pg-task does not know as such. */
const beyondLoopback = "127.1:0";
const unready = new PgTask();
const taken = await createDatabase();
const takenClient = await taken.connect();
const { client, config, pgTask, web, table } = await startWeb({
  "pg_http.listen": beyondLoopback,
  "pg_http.readonly": readOnly,
});

const bearer = (given: string): RequestInit => ({ headers: { Authorization: `Bearer ${given}` } });

it("tells other machines without a token only whether it is ready", async () => {
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
});

it("is not ready while no manager serves its table, and says why only to those who may know", async () => {
  await takenClient.query("DROP TABLE IF EXISTS task CASCADE; CREATE TABLE task (secret_column text)");
  const base = { ...config, url: taken.url };
  await unready.start(base);
  for (const [parameters, pages, open] of [
    [{}, 1, false],
    [{ "pg_http.listen": "127.0.0.1:0", "pg_http.hosts": "tasks.example.com" }, 2, false],
    // The address stays the same.
    [{ "pg_http.listen": "127.0.0.1:0" }, 2, true],
  ] as const) {
    await unready.reload(untyped({ ...base, ...parameters }));
    const page = await Web.connect(unready, token, pages);
    const why = "not ready: no manager serves its table";
    const answer = await page.requestWithoutToken("/ready");
    assert.deepEqual([answer.status, answer.text], [503, `${open ? why : "not ready"}\n`]);
    const trustedAnswer = (await page.request("/ready")).text;
    assert.ok(trustedAnswer.startsWith(`${why}: `) && /secret_column|"task"/.test(trustedAnswer), trustedAnswer);
    const untrusted = await page.requestWithoutToken("/health");
    const wrong = await page.requestWithoutToken("/health", bearer("guess"));
    for (const { status, text } of [untrusted, wrong]) {
      assert.equal(status, 200);
      assert.doesNotMatch(text, /secret_column|reason":"/);
      if (!open) assert.doesNotMatch(text, /managers/);
      else {
        const [entry] = healthSchema.parse(JSON.parse(text)).managers;
        assert.deepEqual([entry?.manager?.state, entry?.manager?.code], ["waiting", "SCHEMA_INCOMPATIBLE"]);
      }
    }
    const [trusted] = healthSchema.parse(JSON.parse((await page.request("/health")).text)).managers;
    assert.match(trusted?.manager?.reason ?? "", /task/);
    assert.equal((await page.requestWithoutToken("/metrics")).status, open ? 200 : 401);
  }
  const ready = await unready.line("ready");
  assert.equal(ready["serving"], 0);
  assert.match(String(ready["waiting"]), /public\.task$/);
  const { code, lines } = await doctor({ DATABASE_URL: taken.url });
  assert.notEqual(code, 0);
  assert.ok(lines.some(({ level }) => level === "fail"));

  // One of two entries is enough.
  const { database: data, user } = taken.target;
  const entries = [
    { data, user },
    { data, user, table: "other" },
  ];
  await unready.reload(untyped({ ...base, "pg_http.listen": "127.0.0.1:0", "pg_task.json": entries }));
  const page = await Web.connect(unready, token, 2);
  await unready.line("serving table");
  // The manager's thread logs this before the supervisor has heard of it.
  await poll(
    () => page.requestWithoutToken("/ready"),
    ({ status }) => status === 200,
  );
  await unready.stop();
});

it("reads everything with the read-only token, and changes nothing", async () => {
  const id = await insertTask(client, "SELECT 1");
  await waitForState(client, id, "DONE");
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
});

it("answers only for the host names that it is given", async () => {
  await pgTask.reload(untyped({ ...config, "pg_http.hosts": "tasks.example.com,Other.Example" }));
  for (const host of [
    "tasks.example.com",
    "TASKS.example.com:8443",
    "other.example",
    "localhost",
    "10.1.2.3:80",
    "[::1]",
  ]) {
    assert.equal(await web.statusForHost(host), 200, host);
  }
  for (const host of ["rebound.example:8765", "example.com", "tasks.example.com.evil.example", "x.tasks.example.com"]) {
    for (const path of ["/", "/health", "/ready", "/metrics", "/api/openapi.json"]) {
      assert.equal(await web.statusForHost(host, path), 403, `${host}${path}`);
    }
  }
  await pgTask.reload(untyped({ ...config, "pg_http.hosts": "rebound.example" }));
  assert.equal(await web.statusForHost("rebound.example"), 200);
  assert.equal(await web.statusForHost("tasks.example.com"), 403);
  await pgTask.reload(untyped(config));
  assert.equal(await web.statusForHost("any.example"), 200, "without a list, every name is answered");
});

it("answers on loopback also for the names of a proxy on the same machine, and takes a new read-only token", async () => {
  const other = `${readOnly}-4`;
  const loopback = { "pg_http.listen": "127.0.0.1:0", "pg_http.hosts": "tasks.example.com", "pg_http.readonly": other };
  await pgTask.reload(untyped({ ...config, ...loopback }));
  const again = await Web.connect(pgTask, token, 2);
  assert.equal(await again.statusForHost("tasks.example.com"), 200);
  assert.equal(await again.statusForHost("rebound.example"), 403);
  assert.equal(await again.statusForHost("10.1.2.3"), 403);
  assert.equal((await again.requestWithoutToken("/api/tables", bearer(readOnly))).status, 401);
  assert.equal((await again.requestWithoutToken("/api/tables", bearer(other))).status, 200);
  assert.doesNotMatch(JSON.stringify(pgTask.lines), new RegExp(`${readOnly}|${token}`));
});

it("does not start with a short token", async () => {
  const cwd = await temporaryFolder();
  await writeFile(join(cwd, "pg_task.json"), JSON.stringify({ ...config, "pg_http.token": "hunter2" }));
  const { code, stdout, stderr } = await cli(["start"], { cwd });
  assert.equal(code, 2);
  assert.match(stderr + stdout, /pg_http\.token: expected a token of at least 16 visible/);
  assert.doesNotMatch(stderr + stdout, /hunter2/);
});
