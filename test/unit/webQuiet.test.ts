import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { writeFile } from "node:fs/promises";
import { get } from "node:http";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import type { ClusterView, ManagerView } from "../../src/shared/cluster.js";
import { loadConfiguration } from "../../src/shared/config/load.js";
import { createLog } from "../../src/shared/log.js";
import { noCounts, noDurations } from "../../src/shared/statistics.js";
import { WebServer } from "../../src/web/server.js";
import { emptyFolder } from "../support/cli.js";
import { test } from "../support/limitedTest.js";

const token = "open-sesame";
const manager: ManagerView = {
  state: "working",
  since: new Date(),
  reason: null,
  running: 1,
  sessions: 1,
  counts: noCounts,
  claims: noDurations,
  runs: noDurations,
};

class Cluster extends EventEmitter implements ClusterView {
  readonly role = "leader";
  readonly ready = true;
  readonly since = new Date();
  manager = (): ManagerView => manager;
}

test("with nobody looking the page's server has no timer and no connection, however much is done", async (context) => {
  const running = new Set<unknown>();
  let made = 0;
  for (const [set, clear] of [
    ["setTimeout", "clearTimeout"],
    ["setInterval", "clearInterval"],
  ] as const) {
    const original = globalThis[set];
    context.mock.method(
      globalThis,
      set,
      (work: (...given: unknown[]) => void, ms: number, ...given: unknown[]) => {
        made++;
        const timer: unknown = original(() => {
          if (set === "setTimeout") running.delete(timer);
          work(...given);
        }, ms);
        running.add(timer);
        return timer;
      },
    );
    const end = globalThis[clear];
    context.mock.method(globalThis, clear, (timer: NodeJS.Timeout) => {
      running.delete(timer);
      end(timer);
    });
  }
  const cwd = await emptyFolder();
  const config = {
    // Nothing answers there.
    url: "postgresql://nobody@127.0.0.1:1/nothing",
    "pg_http.listen": "127.0.0.1:0",
    "pg_http.token": token,
  };
  await writeFile(join(cwd, "pg_task.json"), JSON.stringify(config));
  const configuration = await loadConfiguration({ cwd, env: {} });
  const cluster = new Cluster();
  const said = new EventEmitter();
  const page = new Promise<string>((resolve) => said.once("page", resolve));
  const log = createLog({
    level: "info",
    name: "test",
    write: (line) => {
      const { msg, url } = JSON.parse(line);
      said.emit(msg, url);
    },
  });
  const server = new WebServer(configuration, { cluster, log, version: "0" });
  context.after(() => server.end());
  await server.run();
  const url = await page;
  made = 0;
  const [{ key } = { key: "" }] = configuration.entries;
  for (let count = 0; count < 1000; count++) {
    cluster.emit("worked", key);
    cluster.emit("changed");
    await turn();
  }
  assert.equal(made, 0);
  const open = process.getActiveResourcesInfo().filter((name) => name.startsWith("TCPSocket"));
  assert.deepEqual(open, []);

  // Not fetch, which has timers of its own.
  const asked = get(`${url}api/events`, { headers: { Authorization: `Bearer ${token}` } });
  const [stream] = await once(asked, "response");
  await once(stream, "data");
  assert.ok(running.size > 0, "somebody who looks is served without a timer");
  stream.destroy();
  while (running.size > 0) await turn();
});
