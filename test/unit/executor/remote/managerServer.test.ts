import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { ServerFull, ConnectionPermits } from "../../../../src/executor/remote/managerServer.js";
import { resolveAddresses } from "../../../../src/executor/remote/connectRemote.js";

test("a permit request removes its abort listener once it is answered", async () => {
  const { signal } = new AbortController();
  for (const granted of [true, false]) {
    const permits: ConnectionPermits = new ConnectionPermits((message) => {
      if (message.type === "requestConnectionPermit") setImmediate(() => permits.answer(message.number, granted));
    });
    const request = permits.request(signal);
    assert.equal(getEventListeners(signal, "abort").length, 1);
    if (granted) (await request)(true);
    else await assert.rejects(request, ServerFull);
    assert.deepEqual(getEventListeners(signal, "abort"), []);
  }
});

test("a permit granted to an aborted request is returned", async () => {
  const messages: unknown[] = [];
  const permits = new ConnectionPermits((message) => messages.push(message));
  const controller = new AbortController();
  const request = permits.request(controller.signal);
  controller.abort(new Error("the task was stopped"));
  await assert.rejects(request, /was stopped/);
  permits.answer(1, true);
  assert.deepEqual(messages, [
    { type: "requestConnectionPermit", number: 1 },
    { type: "connectionPermitUsed", number: 1, opened: false },
  ]);
});

test("resolving a host name removes its abort listener", async () => {
  const { signal } = new AbortController();
  assert.notDeepEqual(await resolveAddresses({ host: "localhost", port: 1 }, signal), []);
  await assert.rejects(resolveAddresses({ host: "nowhere.invalid", port: 1 }, signal));
  assert.deepEqual(getEventListeners(signal, "abort"), []);
});
