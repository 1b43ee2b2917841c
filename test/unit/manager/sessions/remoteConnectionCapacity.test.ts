import assert from "node:assert/strict";
import { it } from "node:test";
import { ActiveGroups } from "../../../../src/manager/groups/groups.js";
import { ExecutorThreads, type ExecutorThread } from "../../../../src/manager/sessions/executorThreads.js";
import { RemoteConnectionCapacity } from "../../../../src/manager/sessions/remoteConnectionCapacity.js";
import { SessionPool } from "../../../../src/manager/sessions/sessionPool.js";
import type { ToExecutor } from "../../../../src/shared/ipc/executorMessages.js";
import { stubClient } from "../../../support/stubClient.js";
import { silentLog } from "../../../support/taskTables.js";

it("counts a connection that is opened while the server counts, because the server may have counted before", async () => {
  const thread: ExecutorThread = Object.create(null);
  const answers: boolean[] = [];
  const capacity = new RemoteConnectionCapacity({
    executors: Object.create(ExecutorThreads.prototype, {
      send: {
        value: (_: ExecutorThread, message: ToExecutor) => "granted" in message && answers.push(message.granted),
      },
    }),
    sessions: Object.create(SessionPool.prototype, { opening: { value: 0 } }),
    groups: new ActiveGroups(),
    log: silentLog,
  });
  const client = stubClient(async () => {
    if (answers.length > 0) capacity.endReservation(thread, 1, true);
    return { rows: [{ room: 1 }], rowCount: 1 };
  });
  for (const number of [1, 2]) {
    capacity.request(thread, number);
    await capacity.answerRequests(client);
  }
  assert.deepEqual(answers, [true, false]);
});
