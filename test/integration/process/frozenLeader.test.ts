import assert from "node:assert/strict";
import { beforeEach, it } from "node:test";
import { createDatabase } from "../../support/database.js";
import { replaceConfig } from "../../support/configFile.js";
import { startProcess, type TestProcess } from "../../support/process.js";
import { recordEffect as effect, insertTask, waitForRow, waitForRun, waitForState } from "../../support/tasks.js";

const database = await createDatabase();
const client = await database.connect();
await client.query("CREATE TABLE effect (task bigint)");

beforeEach(() => client.query("DELETE FROM task"));

const start = (frozenMs: number): Promise<TestProcess> =>
  startProcess({ config: { url: database.url, "pg_conf.frozen": frozenMs } });

it("replaces a leader that is suspended, and runs its tasks again; the leader starts nothing when it wakes up", async (context) => {
  const leader = await start(2000);
  await leader.line("ready");
  const standby = await start(2000);
  await standby.line("standby");
  await client.query("SELECT pg_advisory_lock(1)");
  const blocked = await insertTask(client, `SELECT pg_advisory_xact_lock_shared(1); ${effect}`, { group: "blocked" });
  const first = await waitForRun(client, blocked);
  const queued = await insertTask(client, effect, { group: "blocked" });
  leader.child.kill("SIGSTOP");
  const before = performance.now();
  const late = await insertTask(client, effect, { group: "late" });
  await waitForState(client, late, "DONE");
  context.diagnostic(`the next task was done ${Math.round(performance.now() - before)} ms after the suspension`);
  const ended = standby.lines.filter(({ msg }) => msg.endsWith("does not answer, its connection was ended"));
  assert.deepEqual(
    ended.map(({ msg }) => msg.split(" ")[0]),
    ["leader", "manager"],
  );
  // The session of the suspended process had the task. It was ended, too, and the task runs again.
  const second = await waitForRow<{ owner: string }>(
    client,
    "SELECT owner FROM task WHERE id = $1 AND state = 'WORK' AND owner <> $2",
    [blocked, first.owner],
  );
  assert.notEqual(second.owner, first.owner);
  const served = leader.linesMatching("serving table").length;
  leader.child.kill("SIGCONT");
  await leader.line("standby");
  await client.query("SELECT pg_advisory_unlock(1)");
  for (const id of [blocked, queued]) assert.equal((await waitForState(client, id, "DONE")).crash, 0);
  await waitForState(client, await insertTask(client, effect), "DONE");
  const { rows } = await client.query(
    "SELECT count(*)::int AS effects, count(DISTINCT task)::int AS tasks FROM effect",
  );
  assert.deepEqual(rows, [{ effects: 4, tasks: 4 }]);
  // It serves nothing, and none of its backends is left but that of its standby.
  assert.equal(leader.linesMatching("serving table").length, served);
  await waitForRow(
    client,
    `SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name ~ '^pg_work '
     HAVING count(*) = 1`,
  );
  await leader.stop();
  await standby.stop();
});

it("leaves the sessions of a process that is stopping, because it answers", async () => {
  const leader = await start(300);
  await leader.line("ready");
  const standby = await start(300);
  await standby.line("standby");
  await client.query("SELECT pg_advisory_lock(1)");
  const running = await insertTask(client, `SELECT pg_advisory_xact_lock_shared(1); ${effect}`, { group: "running" });
  const { owner } = await waitForRun(client, running);
  const backend = `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name ~ '^pg_work '`;
  const { pid } = await waitForRow<{ pid: number }>(client, backend);
  const asker = await database.connect();
  const answered = new Promise<void>((resolve) => {
    asker.on("notification", ({ payload, processId }) => {
      if (payload === "here" && processId === pid) resolve();
    });
  });
  const { rows } = await asker.query<{ oid: number }>("SELECT 'task'::regclass::oid AS oid");
  await asker.query(`LISTEN pg_work_${rows[0]?.oid}`);
  leader.child.kill("SIGTERM");
  await standby.line("serving table");
  await answered;
  await waitForState(client, await insertTask(client, effect, { group: "next" }), "DONE");
  assert.equal((await waitForState(client, running, "WORK")).owner, owner);
  await client.query("SELECT pg_advisory_unlock(1)");
  await leader.stopped();
  assert.equal((await waitForState(client, running, "DONE")).crash, 0);
  const effects = await client.query("SELECT FROM effect WHERE task = $1", [running]);
  assert.equal(effects.rows.length, 1);
  const ended = standby.lines.filter(({ msg }) => msg.includes("does not answer"));
  assert.deepEqual(ended, []);
  await standby.stop();
});

it("says so if the standby's role may not end the leader's connection, and does it once it may", async () => {
  const suffix = database.target.database;
  const [leads, waits] = [`leads_${suffix}`, `waits_${suffix}`];
  for (const role of [leads, waits]) {
    await client.query(`CREATE ROLE ${role} LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO ${role}`);
  }
  const as = (role: string): Promise<TestProcess> => {
    const url = database.url.replace(`${database.target.user}@`, `${role}@`);
    return startProcess({ config: { url, "pg_conf.frozen": 500, "pg_conf.name": "roles" } });
  };
  const leader = await as(leads);
  await leader.line("became leader");
  const standby = await as(waits);
  await standby.line("standby");
  leader.child.kill("SIGSTOP");
  const refused = await standby.line("leader does not answer, and this role may not end its connection");
  assert.match(String(refused["remedy"]), /GRANT pg_signal_backend/);
  assert.equal(refused.level, "error");
  await client.query(`GRANT pg_signal_backend TO ${waits}`);
  await standby.line("became leader");
  assert.equal(standby.linesMatching(refused.msg).length, 1);
  leader.child.kill("SIGCONT");
  await leader.line("standby");
  for (const each of [leader, standby]) await each.stop();
  for (const role of [leads, waits]) await client.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
});

it("leaves a suspended leader alone if pg_conf.frozen is 0, until a reload sets it", async () => {
  const config = { url: database.url, "pg_conf.name": "never" };
  const leader = await startProcess({ config, until: "became leader" });
  const standby = await startProcess({ config: { ...config, "pg_conf.frozen": 0 }, until: "standby" });
  leader.child.kill("SIGSTOP");
  await replaceConfig(standby, { ...config, "pg_conf.frozen": 500 });
  await standby.line("configuration reloaded");
  await standby.line("became leader");
  const messages = standby.lines.map(({ msg }) => msg);
  const ended = messages.indexOf("leader does not answer, its connection was ended");
  assert.ok(ended > messages.indexOf("configuration reloaded"));
  leader.child.kill("SIGCONT");
  await leader.line("standby");
  for (const each of [leader, standby]) await each.stop();
});
