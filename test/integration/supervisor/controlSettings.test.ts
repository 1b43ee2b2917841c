import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { connect, createServer } from "node:net";
import { after, describe, it } from "node:test";
import { fetchControlSettings } from "../../../src/supervisor/controlSettings.js";
import { createDatabase } from "../../support/database.js";
import { makeEntry, silentLog } from "../../support/taskTables.js";

const { target } = await createDatabase();
const { parameters } = makeEntry(target);

/** Passes on what is said until the settings are asked for, and nothing after that. */
async function swallowing(): Promise<{ port: number; asked: Promise<unknown> }> {
  const news = new EventEmitter();
  const asked = once(news, "asked");
  const proxy = createServer((client) => {
    const server = connect(target.port, target.host);
    let silent = false;
    client.on("data", (data) => {
      silent ||= data.includes("pg_catalog.unnest");
      if (silent) news.emit("asked");
      else server.write(data);
    });
    server.on("data", (data) => silent || client.write(data));
    client.on("close", () => server.destroy());
    client.on("error", () => {});
    server.on("error", () => {});
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  after(() => proxy.close());
  const address = proxy.address();
  assert.ok(address !== null && typeof address === "object");
  return { port: address.port, asked };
}

describe("reading the control database's settings over a network that has swallowed the connection", () => {
  it("ends when the process is told to stop", async () => {
    const { port, asked } = await swallowing();
    const ending = new AbortController();
    const fetched = fetchControlSettings({ ...target, host: "127.0.0.1", port }, parameters, {
      log: silentLog,
      signal: ending.signal,
    });
    await asked;
    ending.abort();
    await assert.rejects(fetched);
  });

  it("ends after the connect timeout", async () => {
    const { port } = await swallowing();
    const { signal } = new AbortController();
    const control = { ...target, host: "127.0.0.1", port, connectTimeoutMs: 1_000 };
    await assert.rejects(fetchControlSettings(control, parameters, { log: silentLog, signal }));
  });
});
