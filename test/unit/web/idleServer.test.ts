// Needs a process of its own: it counts the timers that are created in the process.
import assert from "node:assert/strict";
import { once } from "node:events";
import { get } from "node:http";
import { setImmediate as nextTick } from "node:timers/promises";
import { test } from "../../support/limitedTest.js";
import { token } from "../../support/web.js";
import { startWebServer } from "../../support/webServer.js";

const openSockets = (): string[] => process.getActiveResourcesInfo().filter((name) => name.startsWith("TCPSocket"));

test("the web server has no timer and no connection while nobody is watching, however busy the managers are", async (context) => {
  const activeTimers = new Set<unknown>();
  let created = 0;
  for (const [set, clear] of [
    ["setTimeout", "clearTimeout"],
    ["setInterval", "clearInterval"],
  ] as const) {
    const original = globalThis[set];
    context.mock.method(globalThis, set, (callback: (...args: unknown[]) => void, ms: number, ...args: unknown[]) => {
      created++;
      const timer: unknown = original(() => {
        if (set === "setTimeout") activeTimers.delete(timer);
        callback(...args);
      }, ms);
      activeTimers.add(timer);
      return timer;
    });
    const originalClear = globalThis[clear];
    context.mock.method(globalThis, clear, (timer: NodeJS.Timeout) => {
      activeTimers.delete(timer);
      originalClear(timer);
    });
  }
  const before = openSockets();
  const { url, key, cluster } = await startWebServer(context);
  created = 0;
  for (let count = 0; count < 1000; count++) {
    cluster.emit("worked", key);
    cluster.emit("changed");
    await nextTick();
  }
  assert.equal(created, 0);
  assert.deepEqual(openSockets(), before);

  // This does not use fetch, because fetch itself uses timers.
  const request = get(`${url}api/events`, { headers: { Authorization: `Bearer ${token}` } });
  const [stream] = await once(request, "response");
  await once(stream, "data");
  assert.ok(activeTimers.size > 0, "a stream needs a timer");
  stream.destroy();
  while (activeTimers.size > 0) await nextTick();
});
