import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { connect } from "node:net";
import { describe, it } from "node:test";
import { fetchControlSettings } from "../../../src/supervisor/controlSettings.js";
import { createDatabase } from "../../support/database.js";
import { startRawServer } from "../../support/listen.js";
import { makeEntry, silentLog } from "../../support/taskTables.js";

const { target } = await createDatabase();
const { parameters } = makeEntry(target);

/** Starts a proxy that forwards nothing more once the settings have been queried. */
async function startHalfOpenProxy(): Promise<{ port: number; queried: Promise<unknown> }> {
  const events = new EventEmitter();
  const queried = once(events, "queried");
  const port = await startRawServer((client) => {
    const server = connect(target.port, target.host);
    let silent = false;
    client.on("data", (data) => {
      silent ||= data.includes("pg_catalog.unnest");
      if (silent) events.emit("queried");
      else server.write(data);
    });
    server.on("data", (data) => silent || client.write(data));
    client.on("close", () => server.destroy());
    server.on("error", () => {});
  });
  return { port, queried };
}

describe("reading the control database's settings over a half-open connection", () => {
  it("ends when it is aborted", async () => {
    const { port, queried } = await startHalfOpenProxy();
    const ending = new AbortController();
    const fetched = fetchControlSettings({ ...target, host: "127.0.0.1", port }, parameters, {
      log: silentLog,
      signal: ending.signal,
    });
    await queried;
    ending.abort();
    await assert.rejects(fetched);
  });

  it("ends after the connect timeout", async () => {
    const { port } = await startHalfOpenProxy();
    const { signal } = new AbortController();
    const control = { ...target, host: "127.0.0.1", port, connectTimeoutMs: 1_000 };
    await assert.rejects(fetchControlSettings(control, parameters, { log: silentLog, signal }));
  });
});
