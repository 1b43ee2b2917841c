import assert from "node:assert/strict";
import { once } from "node:events";
import { get } from "node:http";
import { setImmediate as turn } from "node:timers/promises";
import { test } from "../../support/limitedTest.js";
import { token } from "../../support/web.js";
import { startWebServer } from "../../support/webServer.js";

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
  const { url, key, cluster } = await startWebServer(context);
  made = 0;
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
