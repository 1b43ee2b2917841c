import assert from "node:assert/strict";
import { freePort } from "../../../src/embedded/port.js";
import { connectTo } from "../../support/connectTo.js";
import { test } from "../../support/limitedTest.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { PgTask } from "../../support/pgTask.js";
import { insertTask, waitForRow, waitForRun, waitForState } from "../../support/waitFor.js";

const program = new PgTask();
const server = await RestartableServer.create(await freePort());
await server.start();

test("a task runs again when a server crash loses its commit", async () => {
  await program.start({ url: server.url });
  const user = await connectTo(server.url);
  await user.query("CREATE TABLE effect (what text)");
  await user.query("SELECT pg_advisory_lock(1)");
  const id = await insertTask(user, "SELECT FROM pg_advisory_xact_lock_shared(1); INSERT INTO effect VALUES ('made')");
  const { pid } = await waitForRun(user, id);
  const { rows: writers } = await user.query<{ pid: number; take: string }>(
    "SELECT a.pid, t.take::text FROM pg_stat_activity AS a, task AS t WHERE backend_type = 'walwriter'",
  );
  // The commit of CREATE TABLE flushes all WAL so far. Nothing is flushed after that, because the WAL writer is frozen.
  server.freeze(writers.map((writer) => writer.pid));
  await user.query("CREATE TABLE flushed ()");
  const holder = await connectTo(server.url);
  await holder.query("BEGIN; SELECT FROM task FOR UPDATE");
  await user.query("SELECT pg_advisory_unlock_all()");
  await waitForRow(user, "SELECT FROM effect", []);
  await waitForRow(user, "SELECT FROM pg_stat_activity WHERE pid = $1 AND state = 'idle' AND query = 'COMMIT'", [pid]);

  await server.crash();
  await server.start();
  const again = await connectTo(server.url);
  await waitForState(again, id, "DONE");
  const { rows } = await again.query(
    "SELECT take::text <> $2 AS again, output, crash, (SELECT count(*)::integer FROM effect) AS effects FROM task WHERE id = $1",
    [id, writers[0]?.take],
  );
  assert.deepEqual(rows, [{ again: true, output: "\nINSERT 0 1", crash: 0, effects: 1 }]);
  await again.end();
  await program.stop();
});
