import assert from "node:assert/strict";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { startProcess, type TestProcess } from "../../../support/process.js";
import { place, secret, server } from "../../../support/remoteDriver.js";
import { waitForRow, waitForState } from "../../../support/waitFor.js";

const database = await createDatabase();
const client = await database.connect();
await server.admin.query("CREATE TABLE effect (what text)");

/** Goes on though its client is gone, as on a server before 14, until the test lets it. */
const lasting = (what: string): string =>
  `SET client_connection_check_interval = 0; INSERT INTO effect VALUES ('${what}'); SELECT pg_advisory_xact_lock_shared(7)`;

async function insert(input: string, remote: string, group = "group"): Promise<string> {
  const { rows } = await client.query<{ id: string }>(
    `INSERT INTO task (input, remote, "group") VALUES ($1, $2, $3) RETURNING id`,
    [input, remote, group],
  );
  return rows[0]?.id ?? "";
}

/** Processes of the second server that are at it. */
async function running(what: string): Promise<number[]> {
  const { rows } = await server.admin.query<{ pid: number }>(
    `SELECT pid FROM pg_stat_activity WHERE strpos(query, $1) > 0 AND state = 'active' AND pid <> pg_backend_pid()`,
    [`'${what}'`],
  );
  return rows.map(({ pid }) => pid);
}

/** A process that has been killed while it ran a remote task, and the one after it. */
async function killed(
  what: string,
  remote: string,
  parameters: Record<string, unknown> = {},
): Promise<{ id: string; pid: number; second: TestProcess }> {
  const config = { url: database.url, ...parameters };
  const first = await startProcess({ config });
  await first.line("ready");
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

test("a remote task goes on while pg-task is killed: it is not run again before its process is gone", async () => {
  const { id, pid, second } = await killed("alone", place);
  assert.equal((await second.line("remote task may still run, its server is asked"))["id"], id);
  // Others do not wait for it, but those of its group do.
  await waitForState(client, await insert("SELECT 1", place, "another"), "DONE");
  await waitForState(client, id, "WORK");
  assert.deepEqual(await running("alone"), [pid]);
  await server.admin.query("SELECT pg_advisory_unlock(7)");
  await waitForState(client, id, "DONE");
  assert.deepEqual(await running("alone"), []);
  assert.equal((await second.line("orphaned tasks rescued"))["tasks"], 1);
  assert.equal((await second.end()).code, 0);
});

test("a remote task whose server ends it when pg-task is killed runs again at once", async () => {
  const config = { url: database.url };
  const first = await startProcess({ config });
  await first.line("ready");
  await server.admin.query("SELECT pg_advisory_lock(7)");
  const id = await insert("SELECT pg_advisory_xact_lock_shared(7)", place);
  const { pid } = await waitForRow<{ pid: number }>(
    client,
    `SELECT pid FROM task WHERE id = $1 AND state = 'WORK' AND pid::text <> split_part(owner, ' ', 1)`,
    [id],
  );
  await first.end("SIGKILL");
  const second = await startProcess({ config });
  await waitForRow(client, "SELECT FROM task WHERE id = $1 AND state = 'WORK' AND pid <> $2", [
    id,
    pid,
  ]);
  await server.admin.query("SELECT pg_advisory_unlock(7)");
  await waitForState(client, id, "DONE");
  assert.equal((await second.end()).code, 0);
});

test("while its server cannot be asked a remote task stays, until reset: then it may run twice", async () => {
  const remote = `${place} user=scram ${secret}`;
  await server.admin.query("GRANT ALL ON effect TO scram");
  const { id, pid, second } = await killed("unasked", remote, { "pg_task.reset": "4 sec" });
  await server.admin.query("ALTER ROLE scram NOLOGIN");
  await second.line("remote task may still run, its server is asked");
  const said = await second.line(
    "server of a remote task could not be asked whether it still runs, it may run twice",
  );
  assert.equal(said["id"], id);
  assert.ok(!second.output.stdout.includes("secret"));
  assert.deepEqual(await running("unasked"), [pid]);
  await waitForState(client, id, "FAIL");
  await server.admin.query("SELECT pg_advisory_unlock(7)");
  await server.admin.query("ALTER ROLE scram LOGIN");
  assert.equal((await second.end()).code, 0);
});

test("where a run cannot be entered, it does not begin on its server", async () => {
  const program = await startProcess({ config: { url: database.url } });
  await program.line("ready");
  for (const ledger of ["task_ledger_1", "task_ledger_2"])
    await client.query(`ALTER TABLE ${ledger} ADD CONSTRAINT shut CHECK (false) NOT VALID`);
  const id = await insert("INSERT INTO effect VALUES ('unentered')", place);
  const { error } = await waitForRow<{ error: string }>(
    client,
    "SELECT error FROM task WHERE id = $1 AND state = 'FAIL'",
    [id],
  );
  assert.match(
    error,
    /^ERROR: {2}new row for relation "task_ledger_\d" violates check constraint "shut"\n/,
  );
  const { rows } = await server.admin.query("SELECT FROM effect WHERE what = 'unentered'");
  assert.equal(rows.length, 0);
  for (const ledger of ["task_ledger_1", "task_ledger_2"])
    await client.query(`ALTER TABLE ${ledger} DROP CONSTRAINT shut`);
  assert.equal((await program.end()).code, 0);
});
