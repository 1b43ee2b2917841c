import assert from "node:assert/strict";
import { it } from "node:test";
import { withConnectionTo } from "../../support/connectTo.js";
import { startPgTask } from "../../support/pgTask.js";
import { makeReplica, waitForReplay } from "../../support/replica.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { token, Web } from "../../support/web.js";
import { problemSchema } from "../../../src/web/api/model.js";
import { taskListSchema } from "../../../src/web/api/taskSchemas.js";

const primary = await RestartableServer.create();
const standby = await RestartableServer.create();

it("reads from a standby, and refuses every change there", async () => {
  await primary.start();
  const first = await startPgTask({ url: primary.url });
  const id = await withConnectionTo(primary.url, async (client) => {
    const { rows } = await client.query<{ id: string }>(
      "INSERT INTO task (input, plan) VALUES ('SELECT 1', 'infinity') RETURNING id",
    );
    return rows[0]?.id ?? "";
  });
  await makeReplica(primary, standby);
  await standby.start();
  await waitForReplay(primary, standby);

  const other = await startPgTask({
    url: primary.url,
    "pg_conf.name": "other",
    "pg_task.json": [{ url: standby.url }],
    "pg_http.listen": "127.0.0.1:0",
    "pg_http.token": token,
  });
  const web = await Web.connect(other);
  const path = `/api/tables/${await web.tableId()}`;
  const { tasks } = await web.get(taskListSchema, `${path}/tasks`);
  assert.deepEqual(
    tasks.map((task) => task.id),
    [id],
  );
  for (const [target, body] of [
    ["changes", { change: "stop", ids: [id] }],
    [`tasks/${id}/run-now`, {}],
    ["tasks", { input: "SELECT 1" }],
    ["pause", {}],
    ["resume", {}],
  ] as const) {
    const { status, value } = await web.post(`${path}/${target}`, body);
    const { code, detail } = problemSchema.parse(value);
    assert.deepEqual(
      [status, code, detail],
      [409, "READ_ONLY", "this server is a standby or read-only: only the primary takes changes"],
      target,
    );
  }
  await other.stop();
  await first.stop();
});
