import assert from "node:assert/strict";
import { test } from "node:test";
import {
  ExecutorThreads,
  type ExecutorThread,
} from "../../../../src/manager/sessions/executorThreads.js";
import { HandshakeReceiver } from "../../../../src/shared/ipc/handshake/receiver.js";
import { HandshakeSender } from "../../../../src/shared/ipc/handshake/sender.js";
import type { SlotReference, ToExecutor } from "../../../../src/shared/ipc/messages.js";
import { silentLog as log } from "../../../support/taskTables.js";

const nothing = (): void => {};

test("what a thread is told of a run never comes before the run, however many wait for it to take them", async () => {
  const executors = new ExecutorThreads({
    parameters: () => assert.fail("no thread is started"),
    closeMs: () => 60_000,
    events: { message: nothing, room: nothing, ended: nothing },
    log,
    threadLog: log,
  });
  const sender = new HandshakeSender({ slots: 2 });
  const receiver = new HandshakeReceiver(sender.buffer);
  const told: ToExecutor[] = [];
  const thread: ExecutorThread = Object.create(null, {
    sender: { value: sender },
    port: { value: { postMessage: (message: ToExecutor) => told.push(message) } },
  });
  // It is busy, and takes nothing for now.
  for (let each = 0; each < 4; each += 1) executors.dispatch(thread, []);
  executors.tell(thread, { type: "cancel", session: 1, id: "4" });
  executors.dispatch(thread, []);
  executors.tell(thread, { type: "abort" });
  let taken = 0;
  while (sender.pending > 0) {
    const message = told[taken];
    if (message === undefined) await new Promise((resolve) => setImmediate(resolve));
    else {
      taken += 1;
      if (message.type === "dispatch") receiver.take(message satisfies SlotReference);
    }
  }
  assert.deepEqual(
    told.map(({ type }) => type),
    ["dispatch", "dispatch", "dispatch", "dispatch", "cancel", "dispatch", "abort"],
  );
});
