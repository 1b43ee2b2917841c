import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { describe, test } from "node:test";
import { listenToTable } from "../../../../src/manager/schema/listen.js";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import type { Client } from "../../../../src/shared/postgres/client.js";
import { createDatabase } from "../../../support/database.js";
import { createRole, openManager } from "../../../support/taskTables.js";
import { withConnectionTo } from "../../../support/connectTo.js";

const database = await createDatabase("task");
const client = await database.connect();
const manager = await openManager(database.target);

const soon = "now() + interval '1 hour'";
const past = "now() - interval '1 minute'";

async function ready(by: Client, statement: string): Promise<unknown> {
  const { rows } = await by.query(`${statement} RETURNING ready`);
  assert.equal(rows.length, 1);
  return rows[0].ready;
}

async function row(values: string): Promise<string> {
  const [columns = "", given = ""] = values.split(" = ");
  const { rows } = await client.query(
    `INSERT INTO task (input${columns && `, ${columns}`}) VALUES (''${given && `, ${given}`}) RETURNING id`,
  );
  return rows[0].id;
}

async function keepsReady(by: Client): Promise<void> {
  const insert = (columns: string, values: string) =>
    ready(by, `INSERT INTO public.task (input${columns}) VALUES (''${values})`);
  assert.equal(await insert("", ""), true);
  assert.equal(await insert(", plan", `, ${past}`), true);
  assert.equal(await insert(", plan", `, ${soon}`), false);
  assert.equal(await insert(", plan", ", 'infinity'"), false);
  assert.equal(await insert(", plan", ", '-infinity'"), true);
  assert.equal(await insert(", ready", ", false"), true);
  assert.equal(await insert(", ready", ", NULL"), true);
  assert.equal(await insert(", ready, plan", `, true, ${soon}`), false);
  assert.equal(await insert(", owner", ", '1 x'"), null);
  for (const state of ["TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP"]) {
    assert.equal(await insert(", state", `, '${state}'`), null, state);
    assert.equal(await insert(", state, plan", `, '${state}', ${soon}`), null, state);
  }
}

describe("ready", () => {
  test("is set on insert", async () => {
    await keepsReady(client);
  });

  test("follows plan and state when users change them", async () => {
    const id = await row("");
    const update = (set: string) => ready(client, `UPDATE task SET ${set} WHERE id = ${id}`);
    assert.equal(await update(`plan = ${soon}`), false);
    assert.equal(await update(`plan = ${past}`), true);
    assert.equal(await update("state = 'STOP'"), null);
    assert.equal(await update(`plan = ${soon}`), null);
    assert.equal(await update("state = 'PLAN'"), false);
    assert.equal(await update(`state = 'DONE', plan = ${past}`), null);
    assert.equal(await update("state = 'PLAN'"), true);
    assert.equal(await update("ready = false"), true);
    assert.equal(await update("ready = NULL"), true);
    assert.equal(await update(`"group" = 'other', max = 3, input = 'SELECT 2', data = 'x'`), true);
  });

  test("stays null while a session owns the task", async () => {
    const id = await row("state, owner = 'WORK', '1 x'");
    const update = (set: string) => ready(client, `UPDATE task SET ${set} WHERE id = ${id}`);
    assert.equal(await update("state = 'PLAN'"), null);
    assert.equal(await update(`plan = ${soon}`), null);
    assert.equal(await update("state = 'STOP'"), null);
  });

  test("keeps the value that the manager writes", async () => {
    const id = await row("");
    const update = (set: string) => ready(manager, `UPDATE public.task SET ${set} WHERE id = ${id}`);
    assert.equal(await update("state = 'WORK', ready = NULL"), null);
    assert.equal(await update("state = 'PLAN', ready = false"), false);
    assert.equal(await update(`plan = ${soon}, ready = true`), true);
    assert.equal(await update("state = 'DONE'"), true);
  });

  test("is set for each row of a statement", async () => {
    const { rows } = await client.query(
      `INSERT INTO task (input, plan, state) SELECT '', now() + n * interval '1 day',
         CASE WHEN n = 3 THEN 'STOP' ELSE 'PLAN' END::state
       FROM generate_series(-1, 3) AS n RETURNING ready`,
    );
    assert.deepEqual(
      rows.map((each) => each.ready),
      [true, true, false, false, null],
    );
    const updated = await client.query(
      "UPDATE task SET plan = CASE WHEN id % 2 = 0 THEN now() ELSE 'infinity' END WHERE state = 'PLAN' AND owner IS NULL RETURNING id, ready",
    );
    assert.ok(updated.rows.length > 3);
    for (const { id, ready: value } of updated.rows) assert.equal(value, Number(id) % 2 === 0);
  });

  test("is set by COPY", async () => {
    await client.query(
      `COPY task (input, plan, "group") FROM PROGRAM 'printf "a\\tinfinity\\tcopied\\nb\\t2001-01-01\\tcopied\\n"'`,
    );
    const { rows } = await client.query(`SELECT input, ready FROM task WHERE "group" = 'copied' ORDER BY input`);
    assert.deepEqual(rows, [
      { input: "a", ready: false },
      { input: "b", ready: true },
    ]);
  });

  test("is set by INSERT … ON CONFLICT DO UPDATE", async () => {
    const id = await row("");
    const upsert = (plan: string) =>
      ready(client, `INSERT INTO task (id, input) VALUES (${id}, '') ON CONFLICT (id) DO UPDATE SET plan = ${plan}`);
    assert.equal(await upsert(soon), false);
    assert.equal(await upsert(past), true);
  });
});

/** Returns the notifications that a statement sends, without the marker that is sent after it. */
async function heard(by: Client, statement: string): Promise<string[]> {
  const listener = await database.connect();
  const { rows } = await listener.query("SELECT 'public.task'::regclass::oid AS oid");
  await listenToTable(listener, taskTable("public", "task"));
  await listener.query("LISTEN mark");
  const channels: string[] = [];
  const marked = new Promise<void>((resolve) => {
    listener.on("notification", ({ channel }) => {
      if (channel === "mark") resolve();
      else channels.push(channel.replace(String(rows[0].oid), "OID"));
    });
  });
  await by.query(statement);
  await by.query("NOTIFY mark");
  await marked;
  await listener.end();
  return channels;
}

describe("the wake-up", () => {
  const wakes: [string, string][] = [
    ["an insert", "INSERT INTO task (input) VALUES ('')"],
    ["an insert for later", `INSERT INTO task (input, plan) VALUES ('', ${soon})`],
    ["an insert of many rows, once", "INSERT INTO task (input) SELECT '' FROM generate_series(1, 9)"],
    ["a COPY", `COPY task (input) FROM PROGRAM 'echo 1'`],
    ["an update of plan", "UPDATE task SET plan = now()"],
    ["an update of state", "UPDATE task SET state = 'STOP'"],
    ["a delete, which may be that of a running task", "DELETE FROM task"],
    ["a truncate, which may be that of a running task", "TRUNCATE task"],
  ];
  for (const [what, statement] of wakes) {
    test(`is sent on ${what}`, async () => {
      assert.deepEqual(await heard(client, statement), ["pg_task_OID"]);
    });
  }

  const quiet: [string, string][] = [
    ["an update of other columns", `UPDATE task SET data = 'x', max = 1, "group" = 'b', input = 'c'`],
    ["a select for update", "SELECT FROM task FOR UPDATE"],
  ];
  for (const [what, statement] of quiet) {
    test(`is not sent on ${what}`, async () => {
      await client.query("INSERT INTO task (input) VALUES ('')");
      assert.deepEqual(await heard(client, statement), []);
    });
  }

  test("is not sent on the manager's writes", async () => {
    await client.query("INSERT INTO task (input) VALUES ('')");
    const update = "UPDATE public.task SET state = 'DONE', plan = now()";
    assert.deepEqual(await heard(manager, update), []);
    assert.deepEqual(await heard(manager, "INSERT INTO public.task (input) VALUES ('')"), []);
  });

  test("is not sent when the insert is rolled back", async () => {
    await client.query("BEGIN");
    await client.query("INSERT INTO task (input) VALUES ('')");
    assert.deepEqual(await heard(client, "ROLLBACK"), []);
  });

  test("reaches the manager's own connection", async () => {
    const { rows } = await client.query("SELECT 'public.task'::regclass::oid AS oid");
    await listenToTable(manager, taskTable("public", "task"));
    const notified = once(manager, "notification");
    await client.query("INSERT INTO task (input) VALUES ('')");
    assert.equal((await notified)[0].channel, `pg_task_${rows[0].oid}`);
  });
});

test("a role with INSERT can insert without EXECUTE on the trigger functions", async () => {
  const role = await createRole(client, `producer_${randomBytes(4).toString("hex")}`);
  await client.query(
    `REVOKE EXECUTE ON FUNCTION task_ready(), task_wake_up() FROM PUBLIC;
     GRANT USAGE ON SCHEMA public TO ${role}; GRANT INSERT ON task TO ${role};
     GRANT USAGE ON SEQUENCE task_id_seq TO ${role}; TRUNCATE task`,
  );
  await withConnectionTo({ ...database.target, user: role }, async (producer) => {
    await producer.query(`INSERT INTO task (input, plan) VALUES ('SELECT 1', ${soon}), ('SELECT 2', now())`);
    await producer.query("INSERT INTO task (input, state) VALUES ('SELECT 3', 'STOP')");
    await assert.rejects(producer.query("UPDATE task SET state = 'STOP'"), { code: "42501" });
  });
  const { rows } = await client.query("SELECT input, ready FROM task ORDER BY id");
  assert.deepEqual(rows, [
    { input: "SELECT 1", ready: false },
    { input: "SELECT 2", ready: true },
    { input: "SELECT 3", ready: null },
  ]);
});
