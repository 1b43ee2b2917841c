import assert from "node:assert/strict";
import { test } from "node:test";
import { ExecutorThreads, type ExecutorThread } from "../../../../src/manager/sessions/executorThreads.js";
import { HandshakeReceiver } from "../../../../src/shared/ipc/handshake/receiver.js";
import { HandshakeSender } from "../../../../src/shared/ipc/handshake/sender.js";
import type { ToExecutor } from "../../../../src/shared/ipc/executorMessages.js";
import type { SlotReference } from "../../../../src/shared/ipc/handshake/slots.js";
import { silentLog as log } from "../../../support/taskTables.js";

const nothing = (): void => {};

test("a message about a run never overtakes the run, even when the handshake's slots are full", async () => {
  const executors = new ExecutorThreads({
    parameters: () => assert.fail("no thread is started"),
    closeMs: () => 60_000,
    events: { message: nothing, connectionRequest: nothing, ended: nothing },
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
  // The thread has not acknowledged anything yet, because it is busy.
  for (let each = 0; each < 4; each += 1) executors.dispatch(thread, []);
  executors.send(thread, { type: "cancel", session: 1, id: "4" });
  executors.dispatch(thread, []);
  executors.send(thread, { type: "abort" });
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
