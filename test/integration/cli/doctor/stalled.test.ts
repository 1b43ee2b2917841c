import assert from "node:assert/strict";
import { createDatabase } from "../../../support/database.js";
import { doctor, type DoctorLine } from "../../../support/doctor.js";
import { test } from "../../../support/limitedTest.js";
import { startProcess } from "../../../support/process.js";
import { Tasks } from "../../../support/tasks.js";
import { Web } from "../../../support/web.js";
import { healthSchema } from "../../../../src/web/api/schemas.js";

const database = await createDatabase();
const tasks = await Tasks.of(await database.connect());
const token = "open-sesame";

/** What the doctor says of tasks that are not taken. */
async function stalls(): Promise<DoctorLine> {
  const { lines } = await doctor({ DATABASE_URL: database.url });
  const line = lines.find(({ name }) => name === "stalls");
  assert.ok(line !== undefined);
  return line;
}

test("log, /health and the doctor tell of what is due and not taken, and of nothing else", async () => {
  const program = await startProcess({
    config: {
      url: database.url,
      // Soon asleep, so that it depends on being woken.
      "pg_task.sleep": 10,
      "pg_task.idle": 1,
      "pg_http.listen": "127.0.0.1:0",
      "pg_http.token": token,
    },
  });
  await program.line("ready");
  const web = await Web.of(program, token);
  const stalled = async () => {
    const { text } = await web.anonymously("/health");
    return healthSchema.parse(JSON.parse(text)).managers[0]?.manager?.stalled ?? null;
  };
  await tasks.run("SELECT 1", { group: "warm" });
  assert.equal((await stalls()).level, "ok");
  assert.equal(await stalled(), null);

  // Its wake-up never comes.
  await tasks.client.query("ALTER TABLE task DISABLE TRIGGER task_wake_up");
  const stall = program.line("due tasks are not taken though sessions are free");
  let [id, taken] = ["", true];
  // After each task it looks once more, for rows that are not to be kept.
  while (taken) {
    do await new Promise((resolve) => setTimeout(resolve, 3_000));
    while (!(await asleep()));
    [id = ""] = await tasks.insert({ input: "SELECT 1", group: "forgotten" });
    const ended = tasks.ended(id).then(() => true);
    taken = await Promise.race([ended, stall.then(() => false)]);
  }
  const line = await stall;
  assert.deepEqual([line.level, line["tasks"], line["groups"]], ["error", [id], ["forgotten"]]);
  // It looks for itself then.
  assert.equal((await tasks.ended(id))[0]?.state, "DONE");
  assert.deepEqual(await stalled().then((it) => it?.tasks), [id]);
  await program.line("due tasks are taken again");
  while ((await stalled()) !== null) await new Promise((resolve) => setTimeout(resolve, 50));
  await tasks.client.query("ALTER TABLE task ENABLE TRIGGER task_wake_up");

  // The doctor does not depend on the process for it.
  await tasks.run("SELECT 1", { group: "warm" });
  program.child.kill("SIGSTOP");
  const [waits = ""] = await tasks.insert({ input: "SELECT 1", group: "stopped" });
  const said = await stalls();
  program.child.kill("SIGCONT");
  assert.equal(said.level, "warn");
  assert.ok(said.text.endsWith(`: ${waits} of group "stopped"`), said.text);
  await tasks.ended(waits);
  assert.equal((await stalls()).level, "ok");
  const bugs = program.said("due tasks are not taken though sessions are free");
  assert.equal(bugs.length, 1);

  // What a trigger refuses to start is no bug of pg-task's, and the log names it.
  await tasks.client.query(`
    CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no start'; END $$;
    CREATE TRIGGER forbid BEFORE UPDATE ON task FOR EACH ROW
      WHEN (NEW.data = 'refused' AND NEW.state IN ('TAKE', 'WORK')) EXECUTE FUNCTION forbid()`);
  const refusal = program.line("start refused by the server, it is tried again");
  const [refused = ""] = await tasks.insert({
    input: "SELECT 1",
    group: "refused",
    data: "refused",
  });
  assert.equal((await refusal)["id"], refused);
  let told = await stalls();
  // While the session of the task before is not known to be free, it may be what this one waits for.
  while (told.level === "ok") told = await stalls();
  const { text, remedy } = told;
  assert.match(text, /neither rows nor sessions show why: \d+ of group "refused"$/);
  assert.match(remedy, /"refused by the server" names a task that a trigger or constraint/);
  assert.match(
    remedy,
    /look at forbid; where it says "due tasks are not taken though sessions are free", and none/,
  );
  assert.deepEqual(
    program.said("due tasks are not taken though sessions are free"),
    bugs,
    "the manager knows",
  );
});

/** Whether the manager has ended its sessions. */
async function asleep(): Promise<boolean> {
  const { rowCount } = await tasks.client.query(
    "SELECT FROM pg_stat_activity WHERE application_name LIKE 'pg\\_task %' AND datname = current_database()",
  );
  return rowCount === 0;
}
