import assert from "node:assert/strict";
import { once } from "node:events";
import { request } from "node:http";
import { connect, type Socket } from "node:net";
import { it, type TestContext } from "node:test";
import { httpLimits } from "../../../src/web/http/limits.js";
import { startWebServer } from "../../support/webServer.js";
import { token } from "../../support/web.js";

async function openSocket(context: TestContext, url: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  context.after(() => socket.destroy());
  await once(socket, "connect");
  return socket;
}

/** Reads until the server closes the connection. */
async function readToEnd(socket: Socket): Promise<string> {
  let text = "";
  socket.setEncoding("utf8");
  socket.on("data", (chunk: string) => (text += chunk));
  socket.on("error", () => {});
  await once(socket, "close");
  return text;
}

/** Posts a body to an address that reads none. */
function post(url: string, body: Buffer, headers: Record<string, string | number>): Promise<[number, string]> {
  return new Promise((resolve, reject) => {
    const sent = request(
      `${url}api/tables/none/tasks/1/stop`,
      { method: "POST", headers: { Authorization: `Bearer ${token}`, ...headers } },
      (answer) => {
        let text = "";
        answer.setEncoding("utf8");
        answer.on("data", (chunk: string) => (text += chunk));
        answer.on("end", () => resolve([answer.statusCode ?? 0, text]));
      },
    );
    sent.once("error", reject);
    sent.end(body);
  });
}

/** Sends a text over a connection of its own, and reads until the server closes it. */
async function answerTo(context: TestContext, url: string, text: string): Promise<string> {
  const socket = await openSocket(context, url);
  socket.write(text);
  return await readToEnd(socket);
}

const get = (path: string, more = ""): string =>
  `GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n${more}\r\n`;
const withToken = `Authorization: Bearer ${token}\r\n`;

it("refuses headers that are too large with 431", async (context) => {
  const { url } = await startWebServer(context);
  for (const [size, status] of [
    [httpLimits.headerBytes / 2, 200],
    [httpLimits.headerBytes, 431],
  ] as const) {
    const text = get("/health", `X: ${"x".repeat(size)}\r\n`);
    assert.match(await answerTo(context, url, text), new RegExp(`^HTTP/1\\.1 ${status} `));
  }
});

it("refuses bodies that are too large with 413, and those without their length with 411", async (context) => {
  const { url } = await startWebServer(context);
  for (const [headers, size, expected, code] of [
    [{ "Content-Length": httpLimits.bodyBytes }, httpLimits.bodyBytes, 404, "NOT_FOUND"],
    [{ "Content-Length": httpLimits.bodyBytes + 1 }, httpLimits.bodyBytes + 1, 413, "TOO_LARGE"],
    [{ "Transfer-Encoding": "chunked" }, 1, 411, "LENGTH_REQUIRED"],
  ] as const) {
    const [status, text] = await post(url, Buffer.alloc(size), headers);
    assert.deepEqual([status, JSON.parse(text).code], [expected, code]);
  }
});

it("answers probes and users while many clients send their requests slowly, and says so once", async (context) => {
  const { url, logged } = await startWebServer(context);
  const event = "HTTP connections closed: there are too many";
  const closed = once(logged, event);
  let reports = 0;
  logged.on(event, () => (reports += 1));
  const slow: Socket[] = [];
  for (let count = 0; count < 280; count += 1) {
    const socket = await openSocket(context, url);
    socket.on("error", () => {});
    socket.write("GET /health HTTP/1.1\r\n");
    slow.push(socket);
  }
  for (const text of [get("/health"), get("/api/tables", withToken)]) {
    assert.match(await answerTo(context, url, text), /^HTTP\/1\.1 200 /);
  }
  assert.deepEqual(await closed, [{ most: httpLimits.connections, closed: 1 }]);
  assert.equal(reports, 1);
  // The one that has waited the longest made room.
  const [first] = slow;
  if (first?.closed === false) await once(first, "close");
  assert.equal(slow.at(-1)?.destroyed, false);
});

it("reserves connections for requests without a token", async (context) => {
  const { url } = await startWebServer(context, { limits: { ...httpLimits, connections: 3, reserved: 1 } });
  const streams = await Promise.all([openSocket(context, url), openSocket(context, url)]);
  for (const stream of streams) {
    stream.write(get("/api/events", withToken));
    await once(stream, "data");
  }
  for (const [text, status] of [
    [get("/api/tables", withToken), 503],
    [get("/health"), 200],
  ] as const) {
    assert.match(await answerTo(context, url, text), new RegExp(`^HTTP/1\\.1 ${status} `));
  }
  // The connection that waits longest makes room, not one of a request that is being answered.
  const idle = await openSocket(context, url);
  const next = await openSocket(context, url);
  await readToEnd(idle);
  const [stream] = streams;
  assert.ok(stream);
  stream.destroy();
  await once(stream, "close");
  next.write(get("/api/tables", withToken));
  assert.match(await readToEnd(next), /^HTTP\/1\.1 200 /);
});

it("logs wrong tokens, at once and then at most once a minute", async (context) => {
  const { url, logged } = await startWebServer(context);
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const event = "wrong HTTP token";
  const reports: unknown[] = [];
  logged.on(event, (fields) => reports.push(fields));
  const ask = async (path: string, given: string, forwardedFor = ""): Promise<void> => {
    const proxied = forwardedFor === "" ? "" : `X-Forwarded-For: ${forwardedFor}\r\n`;
    await answerTo(context, url, get(path, `Authorization: Bearer ${given}\r\n${proxied}`));
  };
  await ask("/api/tables", token);
  await ask("/api/tables", "guess-1");
  await ask("/api/tables", "guess-2");
  await ask("/health", "guess-3", "198.51.100.7");
  assert.deepEqual(reports, [{ from: "127.0.0.1", requests: 1 }]);
  context.mock.timers.tick(60_000);
  assert.deepEqual(reports.slice(1), [{ from: "127.0.0.1", forwardedFor: "198.51.100.7", requests: 2 }]);
  context.mock.timers.tick(60_000);
  await ask("/metrics", "guess-4");
  await ask("/api/tables", "guess-5");
  assert.equal(reports.length, 3);
});

it("gives up a client that sends its request too slowly", async (context) => {
  const limits = { ...httpLimits, headersMs: 100, requestMs: 200, checkMs: 50 };
  const { url } = await startWebServer(context, { limits });
  const headers = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
  assert.match(await answerTo(context, url, headers), /^HTTP\/1\.1 408 /);
  const body = `POST /api/tables/none/tasks/1/stop HTTP/1.1\r\nHost: localhost\r\n${withToken}Content-Length: 9\r\n\r\nx`;
  // The address reads no body, so the answer comes first.
  assert.match(await answerTo(context, url, body), /^HTTP\/1\.1 404 .*HTTP\/1\.1 408 /s);
});

it("keeps an event stream open although its time for a request is over", async (context) => {
  const limits = { ...httpLimits, headersMs: 100, requestMs: 100, checkMs: 10 };
  const { url, cluster } = await startWebServer(context, { limits });
  let received = "";
  const open = async (): Promise<Socket> => {
    const stream = await openSocket(context, url);
    received = "";
    stream.setEncoding("utf8");
    stream.on("data", (chunk: string) => (received += chunk));
    stream.write(`GET /api/events HTTP/1.1\r\nHost: localhost\r\n${withToken}\r\n`);
    while (!stream.closed && !received.includes("event: hello")) {
      await Promise.race([once(stream, "data"), once(stream, "close")]);
    }
    return stream;
  };
  let stream = await open();
  // On a busy machine, the request itself may be too slow.
  while (received.includes("408")) stream = await open();
  // The server looks for slow requests before it closes this one.
  assert.match(await answerTo(context, url, "GET /health HTTP/1.1\r\n"), /^HTTP\/1\.1 408 /);
  cluster.emit("changed");
  while (!received.includes("event: cluster")) await once(stream, "data");
});
