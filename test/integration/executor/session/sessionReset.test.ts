import assert from "node:assert/strict";
import { describe } from "node:test";
import { test } from "../../../support/limitedTest.js";
import { serve } from "../../../support/serve.js";
import { eventually, type NewTask } from "../../../support/tasks.js";

const { pgTask, database, client, tasks } = await serve({ "pg_task.sleep": 200 });

async function output(input: string, more: Omit<NewTask, "input"> = {}): Promise<string | null> {
  const row = await tasks.run(input, more);
  assert.deepEqual([row.state, row.error], ["DONE", null]);
  return row.output;
}

const pid = "SELECT pg_backend_pid()";
const memory = "SHOW work_mem";
const onDatabase = `ALTER DATABASE ${database.target.database}`;

describe("a change of the role's or database's settings", () => {
  test("applies to the next task in an open session", async () => {
    await client.query(`${onDatabase} SET work_mem = '5MB'`);
    assert.equal(await output(memory), "5MB");
    for (const value of ["6MB", "7MB", "8MB"]) {
      await client.query(`${onDatabase} SET work_mem = '${value}'`);
      assert.equal(await output(memory), value);
    }
    await client.query(`${onDatabase} RESET work_mem`);
    assert.equal(await output(memory), "4MB");
    // If no setting changes, the session is kept.
    assert.equal(await output(pid), await output(pid));
  });

  for (const [title, more] of [
    ["count", { count: 100 }],
    ["live", { live: "1 hour" }],
    ["live and save", { live: "1 hour", save: true }],
  ] as const) {
    test(`applies to the next task of a session dedicated by ${title}`, async () => {
      await client.query("SELECT pg_advisory_lock(7)");
      const group = title;
      const inputs = [`${memory}; SELECT pg_advisory_lock_shared(7)`, `${memory}; ${pid}`, `${memory}; ${pid}`];
      const ids = await tasks.insert(...inputs.map((input) => ({ input, group, ...more })));
      // The row is in state WORK as soon as the task is claimed. When the task waits for the lock, it has read the
      // setting.
      const waits = `SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;
      await eventually(client, waits, (rows) => rows.length === 1);
      await client.query(`${onDatabase} SET work_mem = '5MB'`);
      await client.query("SELECT pg_advisory_unlock(7)");
      const [before, after, last] = await tasks.ended(...ids);
      assert.deepEqual([before?.error, after?.error], [null, null]);
      assert.match(before?.output ?? "", /^4MB/);
      assert.match(after?.output ?? "", /^5MB/);
      assert.equal(last?.output, after?.output);
      await client.query(`${onDatabase} RESET work_mem`);
    });
  }

  test("applies to later tasks while the table is busy", async () => {
    const busy = Array.from({ length: 100 }, () => ({
      input: "SELECT pg_sleep(0.002)",
      group: "busy",
    }));
    const before = await tasks.insert(...busy, ...busy);
    await tasks.until([before[10] ?? ""], (row) => row.state === "DONE");
    const from = pgTask.lines.length;
    await client.query(`${onDatabase} SET work_mem = '9MB'`);
    const isReplacing = (): boolean =>
      pgTask.lines.slice(from).some(({ msg }) => msg === "settings changed, replacing sessions");
    // Only a manager that has tasks checks for changed settings, so the test keeps it busy until it has noticed the
    // change.
    while (!isReplacing()) {
      const more = await tasks.insert(...busy);
      before.push(...more);
      await tasks.until([more[0] ?? ""], (row) => row.state === "DONE");
    }
    const later = await tasks.insert({ input: memory, group: "busy" }, { input: memory });
    for (const row of await tasks.ended(...later)) assert.equal(row.output, "9MB");
    for (const row of await tasks.ended(...before)) assert.equal(row.state, "DONE");
    await client.query(`${onDatabase} RESET work_mem`);
  });

  test("in another database replaces no session", async () => {
    const first = await output(pid);
    await client.query("ALTER DATABASE postgres SET work_mem = '5MB'");
    assert.equal(await output(pid), first);
    await client.query("ALTER DATABASE postgres RESET work_mem");
    assert.equal(await output(pid), first);
  });
});

describe("state that a reset does not remove ends with its session:", () => {
  const cases: Readonly<Record<string, readonly [leave: string, look: string, asNew: string]>> = {
    "a new setting": ["SET my.var = '1'", "SELECT current_setting('my.var', true) IS NULL", "t"],
    "one set for the transaction": [
      "SELECT set_config('my.other', '1', true)",
      "SELECT current_setting('my.other', true) IS NULL",
      "t",
    ],
    "one whose name is computed": [
      "SELECT set_config('my' || '.third', '1', false)",
      "SELECT current_setting('my.third', true) IS NULL",
      "t",
    ],
    "one after a comment": ["SET/* my */my.fourth = 1", "SELECT current_setting('my.fourth', true) IS NULL", "t"],
    "one with a non-ASCII name": ["SET größe.x = 1", "SELECT current_setting('größe.x', true) IS NULL", "t"],
    "one with a name in Unicode escapes": [
      'SET U&"my".fifth = 1',
      "SELECT current_setting('my.fifth', true) IS NULL",
      "t",
    ],
    "one that was only reset": ["RESET my.sixth", "SELECT current_setting('my.sixth', true) IS NULL", "t"],
    "a replication origin": [
      "SELECT pg_replication_origin_create('o' || current_database()); SELECT pg_replication_origin_session_setup('o' || current_database())",
      "SELECT pg_replication_origin_session_is_setup()",
      "f",
    ],
  };
  for (const [title, [leave, look, asNew]] of Object.entries(cases)) {
    test(title, async () => {
      const rows = await tasks.insert(...[leave, look].map((input) => ({ input, group: "one behind the other" })));
      const [, looked] = await tasks.ended(...rows);
      assert.deepEqual([looked?.error, looked?.output], [null, asNew]);
    });
  }

  for (const seeds of [
    "SELECT setseed(0.5)",
    "SET seed = 0.5",
    'SET LOCAL "seed" TO 0.5',
    "SELECT set_config('Seed', '0.5', true)",
  ])
    test(`the next random() after ${seeds}`, async () => {
      const group = seeds;
      const inputs = [seeds, "SELECT random()", seeds, "SELECT random()"];
      const rows = await tasks.ended(...(await tasks.insert(...inputs.map((input) => ({ input, group })))));
      assert.deepEqual([rows[0]?.error, rows[2]?.error], [null, null]);
      assert.notEqual(rows[1]?.output, rows[3]?.output);
    });

  test("a loaded library", async () => {
    const loaded = "SELECT count(*) FROM pg_settings WHERE name LIKE 'auto_explain.%'";
    const [load, look] = await tasks.ended(
      ...(await tasks.insert({ input: "LOAD 'auto_explain'", group: "loads" }, { input: loaded, group: "loads" })),
    );
    assert.equal(load?.error, null);
    assert.equal(look?.output, "0");
  });

  test("but a session with save continues", async () => {
    const more = { live: "1 hour", save: true, group: "keeps" };
    const inputs = ["SET my.kept = 'yes'", "SHOW my.kept"];
    // The session ends if the next task of the group is not there yet when the first one has ended.
    await tasks.client.query("BEGIN");
    const ids = await tasks.insert(...inputs.map((input) => ({ input, ...more })));
    await tasks.client.query("COMMIT");
    const [, kept] = await tasks.ended(...ids);
    assert.equal(kept?.output, "yes");
  });

  test("settings of pg-task or of the server end no session", async () => {
    const first = await output(pid);
    await output(
      "SET pg_task.max = 3; SELECT set_config('work_mem', '5MB', false), set_config('pg_task.group', 'a', false)",
    );
    assert.equal(await output(pid), first);
  });
});

test("no warning was logged", () => {
  assert.deepEqual(
    pgTask.lines.filter(({ level }) => level === "warn" || level === "error").map(({ msg }) => msg),
    [],
  );
});
