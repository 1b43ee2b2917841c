import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { createDatabase } from "../../support/database.js";
import { doctor, type DoctorLine } from "../../support/doctor.js";
import { test } from "../../support/limitedTest.js";
import { startProcess } from "../../support/process.js";
import { suspend } from "../../support/suspend.js";
import { Tasks, recordEffect, eventually } from "../../support/tasks.js";
import { Web, token } from "../../support/web.js";
import { healthSchema } from "../../../src/web/api/schemas.js";

const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);

/** Runs the doctor, and returns its line about stalls. */
async function stalls(): Promise<DoctorLine> {
  const { lines } = await doctor({ DATABASE_URL: database.url });
  const line = lines.find(({ name }) => name === "stalls");
  assert.ok(line !== undefined);
  return line;
}

test("log and /health report stalled tasks", async () => {
  const program = await startProcess({
    config: {
      url: database.url,
      // The manager enters deep sleep soon, so that it depends on being woken.
      "pg_task.sleep": 10,
      "pg_task.idle": 1,
      "pg_http.listen": "127.0.0.1:0",
      "pg_http.token": token,
    },
    until: "ready",
  });
  const web = await Web.connect(program, token);
  const stalled = async () => {
    const { text } = await web.requestWithoutToken("/health");
    return healthSchema.parse(JSON.parse(text)).managers[0]?.manager?.stalled ?? null;
  };
  await tasks.run("SELECT 1", { group: "warm" });
  assert.equal((await stalls()).level, "ok");
  assert.equal(await stalled(), null);
  // A due task that must not start keeps the manager from ending.
  await client.query("INSERT INTO task_pause (\"group\") VALUES ('paused')");
  await tasks.insert({ input: "SELECT 1", group: "paused" });

  // Without this trigger, inserts do not wake the manager.
  await client.query("ALTER TABLE task DISABLE TRIGGER task_wake_up");
  const stall = program.line("due tasks do not start although sessions are free");
  let [id, taken] = ["", true];
  // After each task, the manager runs one more cycle to prune rows. If that cycle takes the task, the test tries again.
  while (taken) {
    do await sleep(3_000);
    while (!(await asleep()));
    [id = ""] = await tasks.insert({ input: "SELECT 1", group: "forgotten" });
    const ended = tasks.ended(id).then(() => true);
    taken = await Promise.race([ended, stall.then(() => false)]);
  }
  const line = await stall;
  assert.deepEqual([line.level, line["tasks"], line["groups"]], ["error", [id], ["forgotten"]]);
  // After it has reported the stall, the manager runs a cycle without being woken.
  assert.equal((await tasks.ended(id))[0]?.state, "DONE");
  assert.deepEqual(await stalled().then((it) => it?.tasks), [id]);
  await program.line("due tasks start again");
  while ((await stalled()) !== null) await sleep(50);
  await client.query("ALTER TABLE task ENABLE TRIGGER task_wake_up; DELETE FROM task WHERE \"group\" = 'paused'");
  await program.end();
});

test("the doctor finds stalled tasks even if pg-task is frozen, and nothing else", async () => {
  // The manager stays awake, so that its session is open when it is frozen.
  const program = await startProcess({ config: { url: database.url }, until: "ready" });
  await tasks.run("SELECT 1", { group: "warm" });
  await suspend(program.pid);
  const waits = await tasks.add("SELECT 1", { group: "stopped" });
  const said = await stalls();
  program.child.kill("SIGCONT");
  assert.equal(said.level, "warn");
  assert.ok(said.text.endsWith(`: ${waits} of group "stopped"`), said.text);
  await tasks.ended(waits);
  assert.equal((await stalls()).level, "ok");

  // A task whose start a trigger rejects is not a stall. The log names the task.
  await client.query(`
    CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no start'; END $$;
    CREATE TRIGGER forbid BEFORE UPDATE ON task FOR EACH ROW
      WHEN (NEW.data = 'refused' AND NEW.state IN ('TAKE', 'WORK')) EXECUTE FUNCTION forbid()`);
  const refusal = program.line("claim rejected by the server, retrying");
  const refused = await tasks.add("SELECT 1", { group: "refused", data: "refused" });
  assert.equal((await refusal)["id"], refused);
  let told = await stalls();
  // As long as the previous task's session does not count as free, this task may be waiting for that session.
  while (told.level === "ok") told = await stalls();
  const { text, remedy } = told;
  assert.match(text, /neither rows nor sessions show why: \d+ of group "refused"$/);
  assert.match(remedy, /"rejected by the server" names a task that a trigger or constraint/);
  assert.match(remedy, /see forbid; if it says "due tasks do not start although sessions are free", and none/);
  assert.deepEqual(program.linesMatching("due tasks do not start although sessions are free"), [], "the manager knows");
});

/** Whether the manager is in deep sleep, that is, has no sessions. */
async function asleep(): Promise<boolean> {
  const { rowCount } = await client.query(
    "SELECT FROM pg_stat_activity WHERE application_name LIKE 'pg\\_task %' AND datname = current_database()",
  );
  return rowCount === 0;
}

test("a large output survives that the process reads nothing for a while", async () => {
  await client.query("CREATE TABLE effect (task bigint)");
  const gate = await database.connect();
  await gate.query("SELECT pg_advisory_lock(1)");
  const program = await startProcess({ config: { url: database.url }, until: "ready" });
  const [id = ""] = await tasks.insert({
    input: `${recordEffect}; COMMIT; SELECT pg_advisory_lock_shared(1); SELECT repeat('x', 60000000)`,
    atomic: false,
  });
  const waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'";
  const [backend] = await eventually<{ pid: number }>(client, waiting);
  await suspend(program.pid);
  await gate.query("SELECT pg_advisory_unlock(1)");
  const alive = `SELECT FROM pg_stat_activity WHERE pid = ${backend?.pid}`;
  await eventually(client, `${alive} AND wait_event = 'ClientWrite'`);
  // There is no event to wait for: the server's kernel used to give up the connection after ten seconds.
  await sleep(14_000);
  const { rowCount } = await client.query(alive);
  process.kill(program.pid, "SIGCONT");
  assert.equal(rowCount, 1);
  const [row] = await tasks.ended(id);
  assert.deepEqual({ state: row?.state, crash: row?.crash }, { state: "DONE", crash: 0 });
  assert.equal((await client.query("SELECT FROM effect WHERE task = $1", [id])).rowCount, 1);
  await program.end();
});
