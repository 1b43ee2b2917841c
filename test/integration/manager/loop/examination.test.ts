import assert from "node:assert/strict";
import { test } from "node:test";
import { Examination } from "../../../../src/manager/loop/examination.js";
import type { Rest, SleepingTable } from "../../../../src/shared/ipc/sleepingTable.js";
import { serverStartSql } from "../../../../src/shared/postgres/backendIdentity.js";
import { createDatabase } from "../../../support/database.js";
import { ensureTaskTable, makeEntry, type EntryOptions } from "../../../support/taskTables.js";
import { valueOf } from "../../../support/tasks.js";

const database = await createDatabase("empty");
const { target } = database;
const user = await database.connect();
const writer = await database.connect();
await ensureTaskTable(target);
const { rows } = await user.query<{ oid: number }>("SELECT 'task'::regclass::oid AS oid");
const oid = rows[0]?.oid ?? 0;

const named = (table: string): EntryOptions => ({ table, fixed: { table } });

const dayMs = 86_400_000;

interface Examined {
  readonly found: SleepingTable | null;
  readonly rest: Rest | null;
}

/** Examines the table as at the start. */
async function examine(given: EntryOptions = {}): Promise<Examined> {
  const examination = await Examination.open([makeEntry(target, given)]);
  try {
    const [found = null] = await examination.find();
    const [rest = null] = await examination.check([0]);
    return { found, rest };
  } finally {
    await examination.close();
  }
}

async function mayBegin(given?: EntryOptions): Promise<boolean> {
  const { found, rest } = await examine(given);
  return found !== null && rest !== null;
}

test("an empty table in order is found, and rests until the zones of rules are to be checked again", async () => {
  const { found, rest } = await examine();
  assert.equal(found?.oid, oid);
  assert.equal(found.channels[0], `pg_task_${oid}`);
  assert.equal(found.channels.length, 3);
  assert.equal(found.rollCall, `pg_work_${oid}`);
  const serverStart = await valueOf<string>(user, `SELECT ${serverStartSql}`);
  const settled = { oid, stateType: null, serverStart, wasServed: false };
  assert.deepEqual(rest, { wakeMs: dayMs, memory: { quietMs: 0, zoneCheckMs: dayMs, settled } });
});

test("a table that is found in order has the names and types of one that was checked", async () => {
  const again = await ensureTaskTable(target);
  assert.equal(again.stateType, '"public".state');
  await user.query(
    "CREATE TYPE own AS ENUM ('PLAN', 'TAKE', 'WORK', 'DONE', 'FAIL', 'GONE', 'STOP'); CREATE TABLE typed (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, input text NOT NULL, plan timestamptz NOT NULL DEFAULT now(), state own NOT NULL DEFAULT 'PLAN')",
  );
  const [checked, found] = [
    await ensureTaskTable(target, named("typed")),
    await ensureTaskTable(target, named("typed")),
  ];
  assert.equal(await mayBegin(named("typed")), true);
  assert.equal(checked.stateType, "public.own");
  assert.deepEqual(found, checked);
});

test("a table that does not exist, is partitioned, or has users, needs its manager", async () => {
  await user.query(
    "CREATE TABLE parts (id bigint NOT NULL, input text NOT NULL, plan timestamptz NOT NULL DEFAULT now(), state text NOT NULL DEFAULT 'PLAN') PARTITION BY RANGE (id)",
  );
  await ensureTaskTable(target, named("parts"));
  await ensureTaskTable(target, { ...named("owned"), users: true });
  assert.equal((await examine(named("missing"))).found, null);
  assert.equal((await examine(named("parts"))).found, null);
  assert.equal((await examine({ ...named("owned"), users: true })).found, null);
});

test("other parameters of the entry are for the manager, others of the file are not", async () => {
  assert.equal((await examine({ parameters: { "pg_task.group": "other" } })).found, null);
  assert.equal((await examine({ parameters: { "pg_conf.name": "other" } })).found, null);
  assert.equal((await examine({ create: false })).found, null);
  assert.equal(await mayBegin({ parameters: { "pg_conf.log": "debug" } }), true);
});

/** What a user may have changed while pg-task was down. Each is seen, and the manager that looks at it settles it. */
const changes: readonly string[] = [
  "ALTER TABLE task ADD COLUMN mine text",
  "ALTER TABLE task ALTER COLUMN input TYPE varchar",
  "ALTER TABLE task ALTER COLUMN data SET DEFAULT 'x'",
  'ALTER TABLE task ALTER COLUMN "group" DROP DEFAULT',
  "ALTER TABLE task ADD CHECK (length(input) < 10000)",
  "ALTER TABLE task DISABLE TRIGGER task_ready_insert; ALTER TABLE task ENABLE TRIGGER task_ready_insert",
  "ALTER TABLE task ENABLE ROW LEVEL SECURITY; ALTER TABLE task DISABLE ROW LEVEL SECURITY; CREATE POLICY p ON task USING (true)",
  "DROP INDEX task_hold_idx",
  "DROP TRIGGER task_options_insert ON task",
  "CREATE RULE r AS ON DELETE TO task WHERE false DO INSTEAD NOTHING",
  "GRANT INSERT ON task TO PUBLIC",
  "DROP TABLE task_owed",
  "ALTER TABLE task_home ADD COLUMN mine text",
  "DROP VIEW task_stats",
  "DROP FUNCTION task_planned CASCADE",
  "ALTER FUNCTION task_reset() COST 5",
  "COMMENT ON FUNCTION task_options() IS 'mine'",
  "COMMENT ON FUNCTION task_planned(text) IS NULL",
  "ALTER FUNCTION task_next(text, text, timestamptz) COST 5000",
  "CREATE FUNCTION task_finish(text) RETURNS text LANGUAGE sql AS 'SELECT $1'",
  "GRANT USAGE ON SCHEMA public TO CURRENT_USER",
  "ALTER DATABASE current SET TimeZone = 'Asia/Tokyo'",
];

for (const change of changes) {
  test(`a change of the catalogue is for the manager: ${change}`, async () => {
    const name = `"${target.database}"`;
    await user.query(change.replace("DATABASE current", `DATABASE ${name}`));
    assert.equal((await examine()).found, null);
    await ensureTaskTable(target);
    assert.equal(await mayBegin(), true);
  });
}

test("what writing, running tasks and housekeeping change in the catalogue is not for the manager", async () => {
  await user.query("INSERT INTO task (input, state, stop) VALUES ('SELECT 1', 'DONE', now())");
  await user.query("ANALYZE task");
  await user.query("VACUUM task");
  await user.query("INSERT INTO task_ledger_1 VALUES (1, 1, false); TRUNCATE task_ledger_2; TRUNCATE task_ledger_1");
  assert.equal(await mayBegin(), true);
});

async function wakesIn(hours: number): Promise<boolean> {
  const { rest } = await examine();
  return rest !== null && Math.abs(rest.wakeMs - hours * 3_600_000) < 600_000;
}

test("the table wakes when its next task is planned, and when a row can be pruned", async () => {
  await user.query(
    "INSERT INTO task (input, plan) VALUES ('SELECT 1', now() + interval '5 hours'), ('SELECT 1', 'infinity')",
  );
  assert.ok(await wakesIn(5));
  await user.query(
    "INSERT INTO task (input, state, stop, keep) VALUES ('SELECT 1', 'DONE', now() - interval '1 hour', '4 hours')",
  );
  assert.ok(await wakesIn(3));
  await user.query("INSERT INTO task (input, rule) VALUES ('SELECT 1', '0 4 1 1 *')");
  assert.ok(await wakesIn(3));
  await user.query("TRUNCATE task");
});

/** Rows with which a manager has something to do, now or soon. */
const work: readonly (readonly [what: string, sql: string])[] = [
  ["a due task", "INSERT INTO task (input) VALUES ('SELECT 1')"],
  [
    "a due task of a paused group",
    "INSERT INTO task_pause VALUES (NULL); INSERT INTO task (input) VALUES ('SELECT 1')",
  ],
  ["a task planned soon", "INSERT INTO task (input, plan) VALUES ('SELECT 1', now() + interval '20 seconds')"],
  ["a claimed task", "INSERT INTO task (input, state, owner) VALUES ('SELECT 1', 'WORK', '1 2')"],
  [
    "a task of which only the owner is left",
    "INSERT INTO task (input, state, owner) VALUES ('SELECT 1', 'DONE', '1 2')",
  ],
  [
    "a task that waits for another",
    "INSERT INTO task (input, plan) VALUES ('SELECT 1', 'infinity'); INSERT INTO task (input, after) SELECT 'SELECT 1', ARRAY[max(id)] FROM task",
  ],
  ["a dependency", "INSERT INTO task_after VALUES (1, 2)"],
  ["an owed successor", "INSERT INTO task_owed VALUES (1)"],
  ["a turn", "INSERT INTO task_turn VALUES (1)"],
  ["proofs in the ledger that is emptied first", "INSERT INTO task_ledger_2 VALUES (1, 1, false)"],
  [
    "a row that can be pruned",
    "INSERT INTO task (input, state, stop, keep) VALUES ('SELECT 1', 'DONE', now() - interval '2 hours', '1 hour')",
  ],
  [
    "a row that can be pruned soon",
    "INSERT INTO task (input, state, stop, keep) VALUES ('SELECT 1', 'DONE', now() - interval '59 minutes 50 seconds', '1 hour')",
  ],
  [
    "a sequence behind the ids",
    "INSERT INTO task (id, input, state) VALUES (nextval('task_id_seq') + 5, 'SELECT 1', 'DONE')",
  ],
  [
    "a schedule planned by a clock that was ahead",
    "INSERT INTO task (input, repeat, plan, created) VALUES ('SELECT 1', '1 day', now() + interval '2 days', now() + interval '1 day')",
  ],
  [
    "a plan that is no time of its rule",
    "INSERT INTO task (input, rule) VALUES ('SELECT 1', '0 4 * * *'); SET session_replication_role = replica; UPDATE task SET plan = plan + interval '90 minutes'; RESET session_replication_role",
  ],
  [
    "a table that is large",
    "INSERT INTO task (input, state, plan) SELECT repeat(md5(n::text), 40), 'DONE', now() FROM generate_series(1, 12000) AS n",
  ],
];

for (const [what, sql] of work) {
  test(`the manager is needed for ${what}`, async () => {
    await user.query(sql);
    const { found, rest } = await examine();
    assert.notEqual(found, null);
    assert.equal(rest, null);
    await user.query("TRUNCATE task, task_after, task_owed, task_turn, task_ledger_2, task_pause");
    assert.equal(await mayBegin(), true);
  });
}

test("a copy is left to its manager, which starts nothing, and so is a table without a home", async () => {
  const { rows: homes } = await user.query<{ table: number }>('SELECT "table" FROM task_home');
  await user.query('UPDATE task_home SET "table" = 1');
  assert.equal((await examine()).rest, null);
  await user.query('UPDATE task_home SET "table" = $1', [homes[0]?.table]);
  assert.equal(await mayBegin(), true);
  await user.query("DELETE FROM task_home");
  assert.equal((await examine()).rest, null);
  await ensureTaskTable(target);
  assert.equal(await mayBegin(), true);
});

for (const isPrepared of [false, true]) {
  test(`a transaction that writes, and may have been told not to notify, is left to the manager${isPrepared ? ", also a prepared one" : ""}`, async () => {
    await writer.query("SET pg_task.notify = off; BEGIN; INSERT INTO task (input) VALUES ('SELECT 1')");
    if (isPrepared) await writer.query("PREPARE TRANSACTION 'examined'");
    assert.equal((await examine()).rest, null);
    await writer.query(isPrepared ? "ROLLBACK PREPARED 'examined'" : "ROLLBACK");
    assert.equal(await mayBegin(), true);
  });
}

test("a table that somebody has locked is left to its manager, and delays no other", async () => {
  const second = named("second");
  await ensureTaskTable(target, second);
  await writer.query("BEGIN; LOCK TABLE task_owed IN ACCESS EXCLUSIVE MODE");
  const examination = await Examination.open([makeEntry(target), makeEntry(target, second)]);
  const found = await examination.find();
  const rests = await examination.check([0, 1]);
  await examination.close();
  await writer.query("ROLLBACK");
  assert.deepEqual(
    [found, rests].map((each) => each.map((answer) => answer !== null)),
    [
      [true, true],
      [false, true],
    ],
  );
});

test("a manager that starts changes nothing, and takes no lock, in a table that was found in order", async () => {
  await ensureTaskTable(target);
  const statements: string[] = [];
  await ensureTaskTable(target, {}, { before: async (text) => void statements.push(text) });
  assert.equal(statements.length, 5);
  assert.ok(statements.every((text) => /^\s*(?:SELECT|WITH)\b/.test(text)));
});
