import assert from "node:assert/strict";
import { test } from "node:test";
import { passwordOption, startRemoteDriver } from "../../../support/remoteDriver.js";
import { serve } from "../../../support/serve.js";
import type { NewTask } from "../../../support/tasks.js";

const { client, tasks } = await serve();
const { remoteString, server } = await startRemoteDriver();

test("a remote task is claimed here, runs there, and its result comes here", async () => {
  const remote = `${remoteString} user=scram ${passwordOption}`;
  const { state, output, error } = await tasks.run("SELECT current_user, inet_server_port()", { remote });
  assert.deepEqual([state, output, error], ["DONE", `current_user\tinet_server_port\nscram\t${server.port}`, null]);
});

test("a wrong connection string fails only its own task", async () => {
  const wrong = await tasks.run("SELECT 1", { remote: "application_name" });
  assert.deepEqual(
    [wrong.state, wrong.output, wrong.error],
    ["FAIL", "", 'ERROR:  missing "=" after "application_name" in connection info string\nSTATEMENT:  SELECT 1'],
  );
  const refused = await tasks.run("SELECT 1", { remote: "host=127.0.0.1 port=1" });
  assert.match(refused.error ?? "", /Connection refused/);
  assert.equal((await tasks.run("SELECT 5")).output, "5");
});

test("the same group with another remote is another group", async () => {
  const input = "SELECT pg_advisory_lock(2)";
  await server.admin.query("SELECT pg_advisory_lock(2)");
  const [one = "", other = "", behind = ""] = await tasks.insert(
    { input, group: "same", remote: remoteString },
    { input, group: "same", remote: `${remoteString} application_name=other` },
    { input, group: "same", remote: remoteString },
  );
  await tasks.running(one);
  await tasks.running(other);
  assert.equal((await tasks.row(behind)).state, "PLAN");
  await server.admin.query("SELECT pg_advisory_unlock(2)");
  for (const { state } of await tasks.ended(one, other, behind)) assert.equal(state, "DONE");
});

test("a remote task whose backend is killed is retried and given up like a local one", async () => {
  const input = "SELECT pg_terminate_backend(pg_backend_pid())";
  const { error } = await tasks.run(input);
  assert.equal((await tasks.run(input, { remote: remoteString })).error, error);
});

async function tries(input: string, more: Omit<NewTask, "input">) {
  const { id, state, error, crash } = await tasks.run(input, more);
  const attempt = await tasks.value<number | null>("SELECT attempt FROM task WHERE id = $1", [id]);
  return { state, error, crash, attempt };
}

test("with retry, a lost connection is an error of class 08, and is counted in attempt instead of crash", async () => {
  const input = "SELECT pg_terminate_backend(pg_backend_pid())";
  const more = { remote: remoteString, retry: 2, backoff: "1 ms" };
  const { state, error, attempt, crash } = await tries(input, { ...more, sqlstate: "{08}" });
  assert.deepEqual([state, attempt, crash], ["FAIL", 2, 0]);
  assert.match(
    error ?? "",
    /^ERROR: {2}connection to the remote server was lost\nDETAIL: {2}.+\nSTATEMENT: {2}SELECT pg_terminate/,
  );
  const excluded = await tries(input, { ...more, sqlstate: "{!08006}" });
  assert.deepEqual([excluded.state, excluded.attempt, excluded.crash], ["FAIL", null, 0]);
});

test("with retry, a server that cannot be reached is tried again, but an invalid connection string is not", async () => {
  const more = { retry: 2, backoff: "1 ms", sqlstate: "{08}" };
  const refused = await tries("SELECT 1", { ...more, remote: "host=127.0.0.1 port=1" });
  assert.deepEqual([refused.state, refused.attempt], ["FAIL", 2]);
  const wrong = await tries("SELECT 1", { ...more, sqlstate: "{}", remote: "application_name" });
  assert.deepEqual([wrong.state, wrong.attempt], ["FAIL", null]);
});

test("with retry, the SQLSTATE with which the other server refuses a login counts", async () => {
  const more = { retry: 1, backoff: "1 ms", remote: `${remoteString} dbname=there_is_none` };
  assert.equal((await tries("SELECT 1", { ...more, sqlstate: "{3D000}" })).attempt, 1);
  assert.equal((await tries("SELECT 1", { ...more, sqlstate: "{08}" })).attempt, null);
});

test("a remote run whose location cannot be recorded does not begin", async () => {
  await server.admin.query("CREATE TABLE effect (what text)");
  for (const ledger of ["task_ledger_1", "task_ledger_2"])
    await client.query(`ALTER TABLE ${ledger} ADD CONSTRAINT shut CHECK (false) NOT VALID`);
  const { state, error } = await tasks.run("INSERT INTO effect VALUES ('unrecorded')", { remote: remoteString });
  assert.equal(state, "FAIL");
  assert.match(error ?? "", /^ERROR: {2}new row for relation "task_ledger_\d" violates check constraint "shut"\n/);
  assert.equal((await server.admin.query("SELECT FROM effect")).rows.length, 0);
  for (const ledger of ["task_ledger_1", "task_ledger_2"])
    await client.query(`ALTER TABLE ${ledger} DROP CONSTRAINT shut`);
});

test("an error of a remote task is retried by its SQLSTATE", async () => {
  const more = { retry: 1, backoff: "1 ms", remote: remoteString };
  assert.equal((await tries("SELECT 1/0", more)).attempt, 1);
  assert.equal((await tries("SELECT 1/0", { ...more, sqlstate: "{40}" })).attempt, null);
});
