import assert from "node:assert/strict";
import { cli } from "../../../support/cli.js";
import { createDatabase } from "../../../support/database.js";
import { doctor, type DoctorLine } from "../../../support/doctor.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { waitForState } from "../../../support/waitFor.js";

const database = await createDatabase();
const client = await database.connect();
const env = { DATABASE_URL: database.url };

/** Executes `statement`, returns what doctor says about the order of tasks, and executes `undo`. */
async function diagnose(statement: string, undo: string): Promise<DoctorLine> {
  await client.query(statement);
  try {
    const line = (await doctor(env)).lines.find(({ name }) => name === "order");
    assert.ok(line);
    return line;
  } finally {
    await client.query(undo);
  }
}

test("warns of tasks whose dependencies were deleted, and names the UPDATE that makes pg-task look again", async () => {
  await client.query(
    `INSERT INTO task (id, input, plan, after) VALUES (9001, '', 'infinity', NULL), (9002, '', now(), '{9001}')`,
  );
  // This is what the row looks like when the manager has looked up the others.
  await client.query("SET pgtask.manager = on; UPDATE task SET wait = 0 WHERE id = 9002; RESET pgtask.manager");
  const { level, text, remedy } = await diagnose("SELECT", "SELECT");
  assert.deepEqual(
    [level, text],
    ["warn", 'waiting for others, but their rows in "public"."task_after" were deleted: 9002'],
  );
  const [, update = ""] = / or (UPDATE .*)$/.exec(remedy) ?? [];
  await client.query(update);
  assert.deepEqual((await client.query("SELECT wait FROM task WHERE id = 9002")).rows, [{ wait: 2 }]);
  const healed = await diagnose("SELECT", "DELETE FROM task WHERE id > 9000");
  assert.deepEqual([healed.level, healed.text], ["ok", "no task waits in vain"]);
});

test("names rows that an earlier load of a dump has planned for infinity, and the UPDATE that mends them", async () => {
  const pgTask = new PgTask();
  await client.query(`
    INSERT INTO task (id, input, after, "group") VALUES
      (9001, 'SELECT 1', NULL, 'a'), (9002, 'SELECT 2', '{9001}', 'b'), (9003, 'SELECT 3', '{9001}', 'c');
    INSERT INTO task (id, input, plan, repeat, after) VALUES (9004, 'SELECT 4', 'infinity', '1 day', '{9001}');
    INSERT INTO task (id, input, plan) VALUES (9005, 'SELECT 5', 'infinity');
    -- As the triggers of that version left the loaded rows: the manager has released the first and not yet the second.
    SET pgtask.manager = on;
    UPDATE task SET due = 'infinity' WHERE id IN (9002, 9003);
    UPDATE task SET due = NULL, wait = NULL WHERE id = 9002;
    RESET pgtask.manager`);
  const { level, text, remedy } = await diagnose("SELECT", "SELECT");
  assert.deepEqual(
    [level, text],
    ["warn", "planned for infinity once those that they wait for have ended, so that nothing starts them: 9002, 9003"],
  );
  const [, update = ""] = /, (UPDATE .*)$/.exec(remedy) ?? [];
  await client.query(update);
  assert.equal((await diagnose("SELECT", "SELECT")).level, "ok");
  await pgTask.start({ url: database.url });
  for (const id of ["9002", "9003"]) await waitForState(client, id, "DONE");
  await pgTask.stop();
  await client.query("DELETE FROM task WHERE id > 9000");
});

for (const [kind, change, undo] of [
  ["a serial column", "ALTER SEQUENCE task_id_seq CACHE 20", "ALTER SEQUENCE task_id_seq CACHE 1"],
  [
    "a sequence of the user",
    "CREATE SEQUENCE mine CACHE 20; ALTER TABLE task ALTER id SET DEFAULT nextval('mine')",
    "ALTER TABLE task ALTER id SET DEFAULT nextval('task_id_seq'); DROP SEQUENCE mine",
  ],
] as const) {
  test(`warns of ids that ${kind} hands out in blocks`, async () => {
    const { level, text, remedy } = await diagnose(change, undo);
    assert.equal(level, "warn");
    assert.match(text, /^public\.(task_id_seq|mine) hands out 20 ids at a time/);
    assert.match(remedy, /^ALTER SEQUENCE public\.(task_id_seq|mine) CACHE 1$/);
  });
}

test("check reports ids that are handed out in blocks", async () => {
  await client.query("ALTER SEQUENCE task_id_seq CACHE 50");
  const { code, stdout } = await cli(["check"], { env });
  assert.equal(code, 0);
  assert.match(stdout, /exists: public\.task_id_seq hands out 50 ids at a time: a task can have a smaller id than/);
});
