import assert from "node:assert/strict";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { it } from "node:test";
import { gunzipSync } from "node:zlib";
import { startWeb } from "../../support/startWeb.js";
import { insertTask } from "../../support/tasks.js";

const { client, web, table } = await startWeb();

/** Fetch would decompress the body. */
async function fetchRaw(path: string, more: Record<string, string> = {}) {
  const headers = { Authorization: `Bearer ${web.token}`, ...more };
  const [response]: IncomingMessage[] = await once(get(`${web.url}${path}`, { headers }), "response");
  assert.ok(response !== undefined);
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return { status: response.statusCode, headers: response.headers, body: Buffer.concat(chunks) };
}

const gzip = { "Accept-Encoding": "br, gzip" };

it("serves the page in three requests and 120 kB", async () => {
  const page = await fetchRaw("/", gzip);
  const html = gunzipSync(page.body).toString();
  const files = [...html.matchAll(/(?:src|href)="(\/[^"]*)"/g)].map(([, path = ""]) => path);
  assert.deepEqual(files, ["/page/style.css", "/page/page.js"]);
  const answers = await Promise.all(files.map((path) => fetchRaw(path, gzip)));
  const bytes = [page, ...answers].reduce((sum, { body }) => sum + body.length, 0);
  assert.ok(bytes < 120_000, `${bytes} bytes`);
  for (const [place, { headers, body }] of answers.entries()) {
    assert.equal(headers["content-encoding"], "gzip");
    assert.deepEqual(gunzipSync(body), (await fetchRaw(files[place] ?? "")).body);
    assert.equal((await fetchRaw(files[place] ?? "", { ...gzip, "If-None-Match": headers.etag ?? "" })).status, 304);
  }
});

it("compresses responses of the API, and answers with 304 as long as they are the same", async () => {
  for (let place = 0; place < 5; place += 1) await insertTask(client, `SELECT ${place}`, { plan: "infinity" });
  const path = `/api/tables/${table}/tasks`;
  const plain = await fetchRaw(path);
  const small = await fetchRaw(path, gzip);
  assert.deepEqual([plain.headers["content-encoding"], small.headers["content-encoding"]], [undefined, "gzip"]);
  assert.deepEqual(gunzipSync(small.body), plain.body);
  const etag = small.headers.etag ?? "";
  const same = await fetchRaw(path, { ...gzip, "If-None-Match": etag });
  assert.deepEqual([same.status, same.body.length, same.headers["pg-task-access"]], [304, 0, "full"]);
  await insertTask(client, "SELECT 2", { plan: "infinity" });
  assert.equal((await fetchRaw(path, { ...gzip, "If-None-Match": etag })).status, 200);
  assert.equal((await fetchRaw(path, { Authorization: "Bearer wrong", "If-None-Match": etag })).status, 401);
});
