import assert from "node:assert/strict";
import { describe } from "node:test";
import { backendPid, connectClient, type Client } from "../../../../../src/shared/postgres/client.js";
import { createDatabase, serverTarget } from "../../../../support/database.js";
import { extensionTable, userTable } from "../../../../support/foreignTables.js";
import { test } from "../../../../support/limitedTest.js";
import { PgTask } from "../../../../support/pgTask.js";
import { startProcess } from "../../../../support/process.js";
import { ensureTaskTable } from "../../../../support/taskTables.js";
import { waitForRow } from "../../../../support/tasks.js";

const pgTask = new PgTask();
const database = await createDatabase("empty");
const { target } = database;
const client = await database.connect();
const producer = await database.connect();

const plainRow = `active, live, repeat, timeout, count, max, delete, drift, header, save, string, delimiter, escape, quote, "group", "null"`;
const plainValues = `'1 day', '0', '0', '0', 0, 0, false, false, true, false, true, ',', '', '', 'group', 'nil'`;

describe("a task that the extension left in TAKE or WORK", () => {
  test("counts as running while its backend lives, and waits again afterwards", async () => {
    await client.query(extensionTable("alive"));
    const worker = await database.connect();
    const elsewhere = await connectClient(serverTarget(), { applicationName: "test" });
    await client.query(
      `INSERT INTO alive.task (parent, input, state, pid, start, ${plainRow}) VALUES
         (NULL, 'SELECT ''worked on''', 'WORK', ${backendPid(worker)}, now(), ${plainValues}),
         (NULL, 'SELECT ''behind it''', 'PLAN', NULL, NULL, ${plainValues}),
         (NULL, 'SELECT ''number given anew''', 'WORK', ${backendPid(worker)}, now() - interval '1 year', ${plainValues}),
         (NULL, 'SELECT ''copied''', 'WORK', ${backendPid(elsewhere)}, now(), ${plainValues})`,
    );
    await client.query(`UPDATE alive.task SET "group" = 'other' WHERE id >= 3`);
    await pgTask.start({ url: database.url, "pg_task.schema": "alive" });
    // The backend with this pid was started after the run, so the pid was reused and the task is an orphan.
    await waitForRow(client, "SELECT FROM alive.task WHERE id = 3 AND state = 'DONE'");
    // The other backend is of another database, so the row was copied from there.
    await waitForRow(client, "SELECT FROM alive.task WHERE id = 4 AND state = 'DONE'");
    await elsewhere.end();
    const { rows } = await client.query(
      "SELECT state::text, owner IS NOT NULL AS owned FROM alive.task WHERE id < 3 ORDER BY id",
    );
    assert.deepEqual(rows, [
      { state: "WORK", owned: true },
      { state: "PLAN", owned: false },
    ]);
    await client.query("SELECT pg_terminate_backend($1)", [backendPid(worker)]);
    await waitForRow(client, "SELECT FROM alive.task WHERE state <> 'DONE' OR owner IS NOT NULL HAVING count(*) = 0");
    const { rows: outputs } = await client.query("SELECT output FROM alive.task ORDER BY id");
    assert.deepEqual(
      outputs,
      ["worked on", "behind it", "number given anew", "copied"].map((output) => ({ output })),
    );
  });
});

describe("a large table", () => {
  test("is adopted without delaying producers, which insert before each step, even after an interruption", async () => {
    await client.query(extensionTable("large"));
    // Autovacuum locks the table for longer than adoption's lock timeout, so adoption would be retried.
    await client.query("ALTER TABLE large.task SET (autovacuum_enabled = off)");
    await client.query(
      `INSERT INTO large.task (parent, input, state, plan, ${plainRow})
       SELECT NULL, rpad('SELECT ' || n, 1800), CASE WHEN n % 10 = 0 THEN 'PLAN' ELSE 'DONE' END::large.state,
         now() + n % 20 * interval '1 hour', ${plainValues} FROM generate_series(1, 25000) AS n`,
    );
    const { rows: stored } = await client.query("SELECT ctid FROM large.task WHERE state = 'DONE'");
    let inserted = 0;
    let statement = "";
    const built: string[] = [];
    const scanning = new Set<string>();
    let isInterrupted = false;
    const before = async (text: string): Promise<void> => {
      statement = text;
      if (/^CREATE (?:UNIQUE )?INDEX/.test(text)) {
        if (!isInterrupted) throw new Error("interrupted");
        built.push(text);
      }
      // Statements in the transaction that locks the table are left out, because producers wait for the end of that
      // transaction.
      if (/^(?:UPDATE|CREATE INDEX|SELECT max)|VALIDATE CONSTRAINT/.test(text)) {
        inserted += 1;
        await producer.query(
          `INSERT INTO large.task (input, plan) VALUES ('', now() + interval '1 hour' * ${inserted % 2})`,
        );
      }
    };
    // The server reports at this level when it reads a whole table.
    const connected = async (manager: Client): Promise<void> => {
      await manager.query("SET client_min_messages = debug1");
      manager.on("notice", ({ message = "" }) => {
        if (/^(?:verifying|rewriting|building) .*"task"/.test(message)) scanning.add(statement);
      });
    };
    const adopt = (): Promise<unknown> => ensureTaskTable(target, { schema: "large" }, { before, connected });
    await assert.rejects(adopt(), /interrupted/);
    isInterrupted = true;
    await adopt();
    assert.ok(scanning.size > 0);
    for (const each of scanning) assert.match(each, /^CREATE (?:UNIQUE )?INDEX CONCURRENTLY/);
    assert.ok(inserted > 5);
    assert.equal(built.length, 7);
    for (const each of built) assert.match(each, /CONCURRENTLY/);
    const { rows: wrong } = await client.query(
      `SELECT FROM large.task WHERE ready IS DISTINCT FROM CASE WHEN state = 'PLAN' THEN plan <= now() END
         OR state = 'PLAN' AND hash IS DISTINCT FROM hashtext("group" || coalesce(remote, ''))`,
    );
    assert.equal(wrong.length, 0);
    // An update would have moved the row to another ctid.
    assert.deepEqual((await client.query("SELECT ctid FROM large.task WHERE state = 'DONE'")).rows, stored);
    await assert.rejects(producer.query("INSERT INTO large.task (input, keep) VALUES ('', '-1 day')"), {
      code: "23514",
    });
  });

  test("continues after an interrupted adoption", async () => {
    await client.query(extensionTable("cut"));
    await client.query(
      `INSERT INTO cut.task (parent, input, ${plainRow}) SELECT NULL, '', ${plainValues} FROM generate_series(1, 6000)`,
    );
    let left = 2;
    const before = async (text: string): Promise<void> => {
      if (text.startsWith("UPDATE") && text.includes("ready IS NULL") && left-- === 1) throw new Error("interrupted");
    };
    await assert.rejects(ensureTaskTable(target, { schema: "cut" }, { before }), /interrupted/);
    const { rows: some } = await client.query("SELECT FROM cut.task WHERE ready");
    assert.equal(some.length, 5000);
    await ensureTaskTable(target, { schema: "cut" });
    const { rows: all } = await client.query("SELECT FROM cut.task WHERE ready");
    assert.equal(all.length, 6000);
  });

  test("fails with SCHEMA_LOCKED while another session locks it, and is adopted later", async () => {
    await client.query(userTable("locked"));
    await producer.query("BEGIN; INSERT INTO locked.task (input) VALUES ('')");
    await assert.rejects(ensureTaskTable(target, { schema: "locked" }), { code: "SCHEMA_LOCKED" });
    await producer.query("COMMIT");
    await ensureTaskTable(target, { schema: "locked" });
    const { rows } = await client.query("SELECT ready FROM locked.task");
    assert.deepEqual(rows, [{ ready: true }]);
  });

  test("is tried again after a pause that the log names", async () => {
    await client.query(userTable("busy"));
    await producer.query("BEGIN; INSERT INTO busy.task (input) VALUES ('')");
    const config = {
      url: database.url,
      // The other tests' process leads the cluster without a name.
      "pg_conf.name": "busy",
      "pg_conf.restart": 1,
      "pg_task.create": true,
      "pg_task.schema": "busy",
    };
    const program = await startProcess({ config });
    const { code } = await program.line("manager unavailable, retrying");
    await producer.query("COMMIT");
    await program.line("table adopted");
    assert.equal(code, "SCHEMA_LOCKED");
    assert.equal((await program.end()).code, 0);
  });
});

describe("null values in columns that pg-task needs", () => {
  test("are filled in waiting and new rows", async () => {
    await client.query(userTable("nulls"));
    await client.query("INSERT INTO nulls.task (input) VALUES ('old')");
    await ensureTaskTable(target, { schema: "nulls" });
    await client.query(`INSERT INTO nulls.task (input, max, "group", count) VALUES ('new', NULL, NULL, NULL)`);
    const { rows } = await client.query(
      `SELECT max, count::int, "group", "null", timeout::text, delimiter FROM nulls.task ORDER BY id`,
    );
    assert.deepEqual(rows, [
      { max: 0, count: 0, group: "mine", null: "nil", timeout: "00:00:00", delimiter: "\t" },
      { max: 0, count: 0, group: "group", null: "nil", timeout: "00:00:00", delimiter: "\t" },
    ]);
  });

  test("are filled with the file's parameters", async () => {
    await client.query(userTable("follows"));
    await ensureTaskTable(target, { schema: "follows" });
    await ensureTaskTable(target, { schema: "follows", parameters: { "pg_task.max": 5 } });
    await client.query("INSERT INTO follows.task (input, max) VALUES ('a', NULL), ('b', DEFAULT)");
    const { rows } = await client.query("SELECT max FROM follows.task");
    assert.deepEqual(rows, [{ max: 5 }, { max: 5 }]);
  });
});
