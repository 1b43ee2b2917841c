import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, it } from "node:test";
import { createDatabase, onServer } from "../../support/database.js";
import { startProcess, type TestProcess } from "../../support/process.js";
import { insertTask, waitForState } from "../../support/tasks.js";

const database = await createDatabase();
const client = await database.connect();
const refused = `refused_${randomBytes(4).toString("hex")}`;
after(() => onServer((server) => server.query(`DROP ROLE ${refused}`)));
await client.query(`CREATE ROLE ${refused} NOLOGIN`);

/** Starts a process of the same cluster. Its only entry connects as this role. */
async function start(user: string): Promise<TestProcess> {
  const entry = { data: database.target.database, user };
  return await startProcess({ config: { url: database.url, "pg_task.json": [entry] }, forked: true });
}

const left = "leadership left to another process, no entry can be served here";

it("leaves the leadership to a standby if the server refuses the logins of all entries", async () => {
  const futile = await start(refused);
  const ready = await futile.line("ready");
  assert.equal(ready["serving"], 0);
  const able = await start(database.target.user);
  await able.line("became leader");
  await futile.line("standby");
  assert.equal(futile.linesMatching(left).length, 1);
  assert.equal(futile.linesMatching("control connection lost").length, 0);
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  // It takes over again when no other process leads, and leaves the leadership again when there is one.
  await able.end("SIGKILL");
  await futile.line("became leader", 2);
  const next = await start(database.target.user);
  await futile.line(left, 2);
  await next.line("ready");
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  await futile.stop();
  // An attempt to connect that stepping down has ended is not reported.
  assert.doesNotMatch(futile.output.stdout, /Connection terminated/);
  await next.stop();
});
