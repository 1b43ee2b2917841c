import assert from "node:assert/strict";
import { connectTo } from "../../support/connectTo.js";
import { CuttingProxy } from "../../support/cuttingProxy.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { startPgTask } from "../../support/pgTask.js";
import { makeReplica, promote, waitForReplay } from "../../support/replica.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { insertTask, valueOf, waitForRow, waitForState } from "../../support/tasks.js";

const database = await createDatabase();
const client = await database.connect();
const serverSettings = { wal_level: "replica", max_wal_senders: 5, hot_standby: "on" };
const primary = await RestartableServer.started(serverSettings);
const standby = await RestartableServer.create();
const name = "cut";
const pgTask = await startPgTask({
  url: database.url,
  "pg_task.crash": 1_000,
  "pg_task.sleep": 50,
  "pg_task.reset": "1 sec",
});

const at = (ports: string): string =>
  `host=${ports.replace(/\d+/g, "127.0.0.1")} port=${ports} user=postgres dbname=postgres sslmode=disable application_name=${name}`;
const waits = "state of a remote task unknown, it waits for its server";
const effect = "INSERT INTO effect VALUES (current_setting('pg_task.id')::bigint) RETURNING 'ran'";

await using(
  primary,
  `CREATE TABLE effect (task bigint);
   CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END $$;
   CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()`,
);

test("a task whose server is away waits for it, however long, and a user may decide otherwise", async () => {
  const remote = at(String(primary.port));
  const insert = (group: string): Promise<string> =>
    insertTask(client, `${effect}; SELECT pg_sleep(600)`, { remote, group });
  const ids = [await insert("a"), await insert("b")];
  for (const id of ids)
    await waitForRow(client, "SELECT FROM task WHERE id = $1 AND pid::text <> split_part(owner, ' ', 1)", [id]);
  await primary.crash("SIGKILL");
  for (const id of ids) {
    const line = await pgTask.logged((each) => each.msg === waits && each["id"] === id);
    assert.ok(line);
  }
  const [kept = "", decided = ""] = ids;
  await client.query("UPDATE task SET input = $1", [effect]);
  await client.query("UPDATE task SET state = 'STOP' WHERE id = $1", [decided]);
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND owner IS NULL", [decided]);
  assert.equal((await waitForState(client, kept, "WORK")).state, "WORK");
  await primary.start(serverSettings);
  await waitForState(client, kept, "DONE");
  assert.equal(await effectsAt(primary, kept), 1);
});

/** Lets a run reach its commit on the primary, and loses all answers from then on. */
async function holdCommit(): Promise<{ id: string; proxy: CuttingProxy; release: () => Promise<void> }> {
  const proxy = await CuttingProxy.start(primary.port);
  const gate = await connectTo(primary.url);
  await gate.query("SELECT pg_advisory_lock(1)");
  const remote = `${at(`${proxy.port},${standby.port}`)} target_session_attrs=read-write`;
  const id = await insertTask(client, effect, { remote });
  await waitForRow(gate, "SELECT FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'advisory'", [
    name,
  ]);
  proxy.mute(name);
  const release = async (): Promise<void> => {
    await gate.query("SELECT pg_advisory_unlock(1)");
    await waitForRow(gate, "SELECT FROM effect WHERE task = $1", [id]);
  };
  return { id, proxy, release };
}

for (const isCommitted of [true, false])
  test(`the standby that takes over knows a run that was ${isCommitted ? "" : "not "}committed`, async () => {
    await makeReplica(primary, standby);
    await standby.start(serverSettings);
    await waitForReplay(primary, standby);
    const { id, proxy, release } = await holdCommit();
    if (isCommitted) {
      await release();
      await waitForReplay(primary, standby);
    }
    await primary.crash("SIGKILL");
    proxy.refuse();
    await promote(standby);
    // Without its output if the promotion has taken longer than `reset`.
    assert.equal((await waitForState(client, id, "DONE")).output ?? "ran", "ran");
    assert.equal(await effectsAt(standby, id), 1);
    await standby.stop();
    await primary.start(serverSettings);
  });

async function using(server: RestartableServer, sql: string): Promise<void> {
  const opened = await connectTo(server.url);
  await opened.query(sql);
  await opened.end();
}

async function effectsAt(server: RestartableServer, id: string): Promise<number> {
  const opened = await connectTo(server.url);
  const count = await valueOf<number>(opened, "SELECT count(*)::integer FROM effect WHERE task = $1", [id]);
  await opened.end();
  return count;
}
