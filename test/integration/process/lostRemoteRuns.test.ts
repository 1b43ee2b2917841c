import assert from "node:assert/strict";
import { connectTo } from "../../support/connectTo.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { startProcess, type TestProcess } from "../../support/process.js";
import { passwordOption, startRemoteDriver } from "../../support/remoteDriver.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { insertTask, valueOf, waitForRow, waitForState } from "../../support/tasks.js";

const { remoteString, server } = await startRemoteDriver();

const database = await createDatabase();
const client = await database.connect();
await server.admin.query("CREATE TABLE effect (what text)");

/**
 * Returns an input that continues without its client, as on a server before PostgreSQL 14, until the test releases the
 * lock.
 */
const lasting = (what: string): string =>
  `SET client_connection_check_interval = 0; INSERT INTO effect VALUES ('${what}'); SELECT pg_advisory_xact_lock_shared(7)`;

/** They write no proof, so it counts whether their backends are gone. */
const insert = (input: string, remote: string, group = "group"): Promise<string> =>
  insertTask(client, input, { remote, group, atomic: false });

/** Returns the pids of the second server's backends that run the input of `lasting(what)`. */
async function running(what: string): Promise<number[]> {
  return await valueOf(
    server.admin,
    `SELECT ARRAY(SELECT pid FROM pg_stat_activity
       WHERE strpos(query, $1) > 0 AND state = 'active' AND pid <> pg_backend_pid())`,
    [`'${what}'`],
  );
}

/** Kills a pg-task process while it runs a remote task, and starts its successor. */
async function killDuringRun(
  what: string,
  remote: string,
  parameters: Record<string, unknown> = {},
): Promise<{ id: string; pid: number; second: TestProcess }> {
  const config = { url: database.url, ...parameters };
  const first = await startProcess({ config, until: "ready" });
  await server.admin.query("SELECT pg_advisory_lock(7)");
  const id = await insert(lasting(what), remote);
  const { pid } = await waitForRow<{ pid: number }>(
    server.admin,
    "SELECT pid FROM pg_stat_activity WHERE strpos(query, $1) > 0 AND wait_event = 'advisory'",
    [`'${what}'`],
  );
  await first.end("SIGKILL");
  const second = await startProcess({ config });
  return { id, pid, second };
}

test("a remote task that outlives pg-task is not run again before its backend is gone", async () => {
  const { id, pid, second } = await killDuringRun("alone", remoteString);
  assert.equal((await second.line("remote task may still run, asking its server"))["id"], id);
  // Only tasks of the same group wait for the lost run.
  await waitForState(client, await insert("SELECT 1", remoteString, "another"), "DONE");
  await waitForState(client, id, "WORK");
  assert.deepEqual(await running("alone"), [pid]);
  await server.admin.query("SELECT pg_advisory_unlock(7)");
  await waitForState(client, id, "DONE");
  assert.deepEqual(await running("alone"), []);
  assert.equal((await second.line("orphaned tasks rescued"))["tasks"], 1);
  await second.stop();
});

test("a remote task that its server ends when pg-task is killed runs again at once", async () => {
  const config = { url: database.url };
  const first = await startProcess({ config, until: "ready" });
  await server.admin.query("SELECT pg_advisory_lock(7)");
  const id = await insert("SELECT pg_advisory_xact_lock_shared(7)", remoteString);
  const { pid } = await waitForRow<{ pid: number }>(
    client,
    `SELECT pid FROM task WHERE id = $1 AND state = 'WORK' AND pid::text <> split_part(owner, ' ', 1)`,
    [id],
  );
  await first.end("SIGKILL");
  const second = await startProcess({ config });
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'WORK' AND pid <> $2", [id, pid]);
  await server.admin.query("SELECT pg_advisory_unlock(7)");
  await waitForState(client, id, "DONE");
  await second.stop();
});

test("a lost remote task whose server cannot be asked is released after pg_task.reset", async () => {
  const remote = `${remoteString} user=scram ${passwordOption}`;
  await server.admin.query("GRANT ALL ON effect TO scram");
  const { id, pid, second } = await killDuringRun("unreachable", remote, {
    "pg_task.reset": "4 sec",
  });
  await server.admin.query("ALTER ROLE scram NOLOGIN");
  await second.line("remote task may still run, asking its server");
  const line = await second.line("state of a remote task unknown, it may run twice");
  assert.equal(line["id"], id);
  assert.ok(!second.output.stdout.includes("secret"));
  assert.deepEqual(await running("unreachable"), [pid]);
  await waitForState(client, id, "FAIL");
  await server.admin.query("SELECT pg_advisory_unlock(7)");
  await server.admin.query("ALTER ROLE scram LOGIN");
  await second.stop();
});

test("a process started after a killed one leaves the server's last connections to others too", async () => {
  const own = await RestartableServer.started({ max_connections: 40, superuser_reserved_connections: 3 });
  const config = { url: own.url, "pg_task.sleep": 50 };
  const noRoom = "connection limit of the server reached, remote tasks wait";
  const first = await startProcess({ config, until: "ready" });
  const user = await connectTo(own.url);
  await user.query("CREATE TABLE gate (open boolean)");
  await user.query(
    `INSERT INTO task (input, remote, max) SELECT $1, 'dbname=postgres', 39 FROM generate_series(1, 40)`,
    [
      `DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM public.gate) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$;
       SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'`,
    ],
  );
  await first.line(noRoom);
  await first.end("SIGKILL");
  const second = await startProcess({ config });
  await second.line(noRoom);
  await user.query("INSERT INTO gate VALUES (true)");
  await waitForRow(user, "SELECT FROM task HAVING count(*) FILTER (WHERE state IN ('DONE', 'FAIL')) = 40");
  const { rows } = await user.query<{ state: string; crash: number; output: string }>(
    "SELECT state::text, crash, output FROM task",
  );
  assert.deepEqual(
    rows.filter(({ state, crash }) => state !== "DONE" || crash > 0),
    [],
  );
  const most = Math.max(...rows.map(({ output }) => Number(output.split("\n").at(-1))));
  assert.ok(most <= 30, `${most} connections`);
  await second.stop();
  await user.end();
});
