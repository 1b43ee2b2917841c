import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import {
  ServerFull,
  ConnectionPermits,
} from "../../../../src/executor/remote/managerServerLimit.js";
import { placesOf } from "../../../../src/executor/remote/connectRemote.js";

test("a question for room leaves nothing with the signal once it is answered, however it is", async () => {
  const { signal } = new AbortController();
  for (const room of [true, false]) {
    const desk: ConnectionPermits = new ConnectionPermits((message) => {
      if (message.type === "room") setImmediate(() => desk.answered(message.number, room));
    });
    const asked = desk.ask(signal);
    assert.equal(getEventListeners(signal, "abort").length, 1);
    if (room) (await asked)(true);
    else await assert.rejects(asked, ServerFull);
    assert.deepEqual(getEventListeners(signal, "abort"), []);
  }
});

test("room that is given for a question that was given up goes back", async () => {
  const told: unknown[] = [];
  const desk = new ConnectionPermits((message) => told.push(message));
  const ending = new AbortController();
  const asked = desk.ask(ending.signal);
  ending.abort(new Error("the task was stopped"));
  await assert.rejects(asked, /was stopped/);
  desk.answered(1, true);
  assert.deepEqual(told, [
    { type: "room", number: 1 },
    { type: "entered", number: 1, open: false },
  ]);
});

test("nor does a look for a host's addresses leave anything", async () => {
  const { signal } = new AbortController();
  assert.notDeepEqual(await placesOf({ host: "localhost", address: null, port: 1 }, signal), []);
  await assert.rejects(placesOf({ host: "nowhere.invalid", address: null, port: 1 }, signal));
  assert.deepEqual(getEventListeners(signal, "abort"), []);
});
