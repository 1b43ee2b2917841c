import assert from "node:assert/strict";
import { once } from "node:events";
import { get, request, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import { setImmediate as nextTick } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { test } from "../../../support/limitedTest.js";
import { token } from "../../../support/web.js";
import { startWebServer } from "../../../support/webServer.js";

setFlagsFromString("--expose-gc");
const collectGarbage: () => void = runInNewContext("gc");

const headers = { Authorization: `Bearer ${token}` };

async function open(url: string): Promise<IncomingMessage> {
  const [stream]: IncomingMessage[] = await once(get(`${url}api/events`, { headers, agent: false }), "response");
  assert.ok(stream);
  await once(stream, "data");
  return stream;
}

async function close(stream: IncomingMessage): Promise<void> {
  stream.destroy();
  await once(stream, "close");
}

/** Returns the size of the heap after garbage collection, in bytes. */
async function heapUsed(): Promise<number> {
  for (let round = 0; round < 5; round++) {
    await nextTick();
    collectGarbage();
  }
  return process.memoryUsage().heapUsed;
}

test("ended streams leak no memory, and many at once cause no warning", async (context) => {
  const warnings: Error[] = [];
  const onWarning = (warning: Error): void => void warnings.push(warning);
  process.on("warning", onWarning);
  context.after(() => process.off("warning", onWarning));
  const { url, cluster } = await startWebServer(context);
  const listeners = cluster.listenerCount("changed");
  const rounds = async (count: number): Promise<void> => {
    for (let round = 0; round < count; round++) {
      const streams = await Promise.all(Array.from({ length: 20 }, () => open(url)));
      await Promise.all(streams.map(close));
    }
    while (cluster.listenerCount("changed") > listeners) await nextTick();
  };
  // The first rounds fill caches.
  await rounds(20);
  const before = await heapUsed();
  await rounds(25);
  const perStream = ((await heapUsed()) - before) / (25 * 20);
  context.diagnostic(`${Math.round(perStream)} bytes for each stream`);
  assert.ok(perStream < 2_000, `${perStream} bytes for each stream`);
  assert.deepEqual(warnings, []);
});

test("a HEAD request for events is answered and watches nothing", async (context) => {
  const { url, cluster } = await startWebServer(context);
  const listeners = cluster.listenerCount("changed");
  const head = request(`${url}api/events`, { method: "HEAD", headers, agent: false });
  head.end();
  const [answer]: IncomingMessage[] = await once(head, "response");
  assert.equal(answer?.statusCode, 200);
  assert.match(answer.headers["content-type"] ?? "", /^text\/event-stream/);
  assert.equal(cluster.listenerCount("changed"), listeners);
});

test("a stream whose client stops reading buffers a bounded amount", async (context) => {
  const { url, cluster } = await startWebServer(context);
  const stream = await open(url);
  stream.pause();
  const before = await heapUsed();
  for (let count = 0; count < 200_000; count++) {
    cluster.emit("changed");
    if (count % 1_000 === 0) await nextTick();
  }
  const grown = (await heapUsed()) - before;
  context.diagnostic(`${Math.round(grown / 1024)} kB`);
  assert.ok(grown < 2_000_000, `${grown} bytes`);
  await close(stream);
});

test("an event request pipelined behind a stream is rejected and watches nothing", async (context) => {
  const { url, cluster } = await startWebServer(context);
  const listeners = cluster.listenerCount("changed");
  const { hostname, port, host } = new URL(url);
  const socket = connect(Number(port), hostname);
  const requestText = `GET /api/events HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Bearer ${token}\r\n\r\n`;
  socket.write(requestText.repeat(3));
  await once(socket, "data");
  assert.equal(cluster.listenerCount("changed"), listeners + 1);
  socket.destroy();
  while (cluster.listenerCount("changed") > listeners) await nextTick();
});
