import assert from "node:assert/strict";
import { freePort } from "../../../src/embedded/port.js";
import { cli } from "../../support/cli.js";
import { connectTo } from "../../support/connectTo.js";
import { doctor } from "../../support/doctor.js";
import { test } from "../../support/limitedTest.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { PgTask } from "../../support/pgTask.js";
import { insertTask, waitForState } from "../../support/waitFor.js";

const program = new PgTask();
const server = await RestartableServer.create(await freePort());
await server.start();
const env = { DATABASE_URL: server.url };

/** Returns what `why` says about a task. */
async function explain(id: string): Promise<{ readonly code: string; readonly text: string; readonly remedy: string }> {
  const { stdout } = await cli(["why", id, "--json"], { env });
  const { reasons } = JSON.parse(stdout);
  assert.equal(reasons.length, 1, stdout);
  return reasons[0];
}

test("a rejected result is kept when the server crashes, and neither why nor doctor takes its task for an orphan", async () => {
  await program.start({ url: server.url });
  const user = await connectTo(server.url);
  await user.query(`
    CREATE TABLE effect (what text);
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON task FOR EACH ROW WHEN (NEW.state IN ('DONE', 'FAIL')) EXECUTE FUNCTION refuse()`);
  const done = await insertTask(user, "INSERT INTO effect VALUES ('made')", "done");
  const failed = await insertTask(user, "SELECT 1/0", "failed");
  await program.line("result rejected by the server, retrying", 2);
  await server.crash();
  await server.start();
  await program.line("serving table", 2);

  for (const id of [done, failed]) {
    // The manager tries to write its results before it can show that they are rejected.
    let reason = await explain(id);
    while (reason.code !== "rejected") reason = await explain(id);
    assert.match(reason.text, /its run has ended, and the server rejects its result: .*, perhaps refuse$/);
    assert.match(reason.remedy, new RegExp(`"result rejected by the server, retrying" with the id ${id} says why`));
  }
  const { lines } = await doctor(env);
  const [results] = lines.filter(({ name }) => name === "results");
  const [orphans] = lines.filter(({ name }) => name === "orphans");
  assert.deepEqual(
    [results?.level, results?.text],
    ["warn", `the runs of these tasks have ended, and the server rejects their results: ${done}, ${failed}`],
  );
  assert.deepEqual([orphans?.level, orphans?.text], ["ok", "none"]);

  const again = await connectTo(server.url);
  await again.query("DROP TRIGGER refuse ON task");
  await waitForState(again, done, "DONE");
  await waitForState(again, failed, "FAIL");
  const { rows } = await again.query("SELECT count(*)::integer AS effects FROM effect");
  assert.deepEqual(rows, [{ effects: 1 }]);
  assert.equal((await doctor(env)).lines.find(({ name }) => name === "results")?.level, "ok");
  await again.end();
  await program.stop();
});
