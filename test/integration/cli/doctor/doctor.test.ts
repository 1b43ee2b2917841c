import assert from "node:assert/strict";
import { readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe } from "node:test";
import { fileParameters } from "../../../../src/shared/config/parameters.js";
import { lockClasses } from "../../../../src/shared/postgres/advisoryLocks.js";
import { connectClient } from "../../../../src/shared/postgres/client.js";
import { createDatabase } from "../../../support/database.js";
import { cli, envOf, failsWith, commandsOn } from "../../../support/cli.js";
import { doctor, type DoctorLine } from "../../../support/doctor.js";
import { test } from "../../../support/limitedTest.js";
import { createRole } from "../../../support/taskTables.js";
import { PgTask } from "../../../support/pgTask.js";
import { temporaryFolder } from "../../../support/temporaryFolder.js";
import { asManager, waitForState } from "../../../support/tasks.js";

const database = await createDatabase();
const { target } = database;
const client = await database.connect();
const { env, run, shownBy } = commandsOn(database);

/** Returns the names of the checks that failed, except for the missing manager: in this file, pg-task does not run. */
const failuresIn = (lines: readonly DoctorLine[]): string[] =>
  lines.filter(({ level, name }) => level === "fail" && name !== "manager").map(({ name }) => name);

/** Executes `statement`, returns the doctor's line with this name, and executes `undo`. */
async function diagnose(
  name: string,
  statement = "",
  undo = "",
  given = env,
): Promise<DoctorLine & { failed: readonly string[] }> {
  await client.query(statement);
  try {
    const { lines } = await doctor(given);
    const line = lines.findLast((each) => each.name === name);
    assert.ok(line, `no line about ${name}`);
    return { ...line, failed: failuresIn(lines) };
  } finally {
    await client.query(undo);
  }
}

/** The owner of a task whose session is gone. */
const dead = "2147483647 2001-01-01T00:00:00.000000";

const markValid = (valid: boolean): string =>
  `UPDATE pg_index SET indisvalid = ${valid} WHERE indexrelid = 'task_due_idx'::regclass`;

const recorded = (own: string): string => `COMMENT ON FUNCTION task_wake_up() IS 'pg-task wake-up${own}'`;

const commented = (text: string): string => `COMMENT ON FUNCTION task_ready() IS '${text}'`;

describe("pg-task doctor, of the order of tasks,", () => {
  test("warns of tasks whose dependencies were deleted, and names the UPDATE that makes pg-task look again", async () => {
    await client.query(
      `INSERT INTO task (id, input, plan, after) VALUES (9001, '', 'infinity', NULL), (9002, '', now(), '{9001}')`,
    );
    // This is what the row looks like when the manager has looked up the others.
    await asManager(client, "UPDATE task SET wait = 0 WHERE id = 9002");
    const { level, text, remedy } = await diagnose("order");
    assert.deepEqual(
      [level, text],
      ["warn", 'waiting for others, but their rows in "public"."task_after" were deleted: 9002'],
    );
    const [, update = ""] = / or (UPDATE .*)$/.exec(remedy) ?? [];
    await client.query(update);
    assert.deepEqual((await client.query("SELECT wait FROM task WHERE id = 9002")).rows, [{ wait: 2 }]);
    const healed = await diagnose("order", "", "DELETE FROM task WHERE id > 9000");
    assert.deepEqual([healed.level, healed.text], ["ok", "no task waits in vain"]);
  });

  test("names rows that an earlier load of a dump has planned for infinity, and the UPDATE that mends them", async () => {
    const pgTask = new PgTask();
    await client.query(`
      INSERT INTO task (id, input, after, "group") VALUES
        (9001, 'SELECT 1', NULL, 'a'), (9002, 'SELECT 2', '{9001}', 'b'), (9003, 'SELECT 3', '{9001}', 'c');
      INSERT INTO task (id, input, plan, repeat, after) VALUES (9004, 'SELECT 4', 'infinity', '1 day', '{9001}');
      INSERT INTO task (id, input, plan) VALUES (9005, 'SELECT 5', 'infinity')`);
    // As the triggers of that version left the loaded rows: the manager has released the first and not yet the second.
    await asManager(
      client,
      "UPDATE task SET due = 'infinity' WHERE id IN (9002, 9003); UPDATE task SET due = NULL, wait = NULL WHERE id = 9002",
    );
    const { level, text, remedy } = await diagnose("order");
    assert.deepEqual(
      [level, text],
      [
        "warn",
        "planned for infinity once those that they wait for have ended, so that nothing starts them: 9002, 9003",
      ],
    );
    const [, update = ""] = /, (UPDATE .*)$/.exec(remedy) ?? [];
    await client.query(update);
    assert.equal((await diagnose("order")).level, "ok");
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
      const { level, text, remedy } = await diagnose("order", change, undo);
      assert.equal(level, "warn");
      assert.match(text, /^public\.(task_id_seq|mine) hands out 20 ids at a time/);
      assert.match(remedy, /^ALTER SEQUENCE public\.(task_id_seq|mine) CACHE 1$/);
    });
  }

  test("check reports ids that are handed out in blocks", async () => {
    await client.query("ALTER SEQUENCE task_id_seq CACHE 50");
    const { code, stdout } = await run("check");
    assert.equal(code, 0);
    assert.match(stdout, /exists: public\.task_id_seq hands out 50 ids at a time: a task can have a smaller id than/);
  });
});

describe("pg-task doctor", () => {
  test("finds no failure in a new table except for the missing manager, and warns of the missing leader", async () => {
    const { code, lines } = await doctor(env);
    assert.equal(code, 4);
    assert.deepEqual(failuresIn(lines), []);
    const { level: ofManager, text: manager } = lines.find(({ name }) => name === "manager") ?? {};
    assert.deepEqual([ofManager, manager], ["fail", "no manager serves the table"]);
    assert.equal(lines.find(({ name }) => name === "leader")?.level, "warn");
    for (const { level, remedy } of lines) assert.equal(remedy === String.raw`\N`, level === "ok");
    const names = new Set(lines.map(({ name }) => name));
    const expected = "version connection primary clock connections rights triggers indexes views bloat transactions";
    for (const name of expected.split(" ")) assert.ok(names.has(name), name);
  });

  test("warns of tasks whose session is missing or gone", async () => {
    // Triggers refuse a row that never had a session.
    await client.query("SET session_replication_role = replica");
    const { rows } = await client.query<{ id: string }>(
      `INSERT INTO task (input, state, owner, remote) VALUES ('', 'WORK', NULL, NULL), ('', 'TAKE', $1, NULL),
         ('', 'WORK', $1, 'host=nowhere'), ('', 'WORK', pg_backend_pid() || ' x', NULL), ('', 'PLAN', NULL, NULL) RETURNING id`,
      [dead],
    );
    await client.query("RESET session_replication_role");
    const [first, second] = rows.map(({ id }) => id);
    const found = await diagnose("orphans", "", "TRUNCATE task");
    assert.equal(found.level, "warn");
    assert.equal(found.text, `in TAKE or WORK without a session: ${first}, ${second}`);
    assert.match(
      found.remedy,
      new RegExp(`^pg-task stop ${first} && pg-task retry ${first} runs what never had .* \\(${first}\\); a manager`),
    );
    assert.equal((await diagnose("orphans")).level, "ok");
  });

  test("names the tasks whose results the server rejects, and does not take them for orphans", async () => {
    const large = 3 * 2 ** 32 + 2 ** 31 + 5;
    await client.query(
      `INSERT INTO task (id, input, state, owner) OVERRIDING SYSTEM VALUE
       VALUES (${large}, '', 'WORK', $1), (${large + 1}, '', 'WORK', $1), (5, '', 'PLAN', NULL)`,
      [dead],
    );
    const manager = await database.connect();
    // Only the locks of the table's manager count.
    const marks = [large, 5].map((id) => `pg_advisory_lock_shared(${lockClasses.rejectedResult}, ${id | 0})`);
    await client.query(`SELECT ${marks.join(", ")}`);
    const unmarked = await diagnose("results");
    assert.deepEqual([unmarked.level, unmarked.text], ["ok", "none is rejected by the server"]);
    await manager.query(
      `SELECT pg_advisory_lock(${lockClasses.manager}, 'task'::regclass::oid::integer), ${marks.join(", ")}`,
    );
    const results = await diagnose("results");
    assert.equal(results.level, "warn");
    assert.equal(results.text, `the runs of these tasks have ended, and the server rejects their results: ${large}`);
    assert.match(results.remedy, /"result rejected by the server, retrying"/);
    const orphans = await diagnose("orphans", "", "TRUNCATE task");
    assert.equal(orphans.text, `in TAKE or WORK without a session: ${large + 1}`);
    assert.match(orphans.remedy, /"rescue rejected by the server, retrying"/);
    await manager.end();
    await client.query("SELECT pg_advisory_unlock_all()");
  });

  test("says that there are other rejected results, also if not all can be marked", async () => {
    await client.query(
      "INSERT INTO task (id, input, state, owner) OVERRIDING SYSTEM VALUE SELECT i, '', 'WORK', $1 FROM generate_series(1, 101) AS i",
      [dead],
    );
    const manager = await database.connect();
    const mark = async (from: number, to: number): Promise<void> => {
      await manager.query(
        `SELECT pg_advisory_lock_shared(${lockClasses.rejectedResult}, i) FROM generate_series(${from}, ${to}) AS i`,
      );
    };
    await manager.query(`SELECT pg_advisory_lock(${lockClasses.manager}, 'task'::regclass::oid::integer)`);
    await mark(1, 7);
    const few = await diagnose("results");
    assert.match(few.text, /rejects their results: \d+(?:, \d+){4} and 2 others$/);
    await mark(8, 100);
    const many = await diagnose("results");
    assert.match(many.text, / and at least 95 others; further ones look like running tasks or orphans$/);
    const orphans = await diagnose("orphans");
    assert.match(orphans.text, /^in TAKE or WORK without a session: 101; some may be tasks whose results the server /);
    const why = await run("why", "101");
    assert.match(why.stdout, /^orphaned\t.*; the server rejects the results of so many tasks .* has the id 101\n$/);
    await manager.query("SELECT pg_advisory_unlock_all()");
    await manager.end();
    const alone = await run("why", "101");
    assert.match(alone.stdout, /^orphaned\t/);
    assert.doesNotMatch(alone.stdout, /results of so many tasks/);
    await client.query("TRUNCATE task");
  });

  test("counts sessions of its tables separately from other connections", async () => {
    const sessions = await Promise.all(
      ["pg_task public task", "pg_task public task mail", "pg_task public other mail"].map((name) =>
        connectClient(target, { applicationName: name }),
      ),
    );
    const { lines } = await doctor(env);
    assert.match(
      lines.find(({ name }) => name === "connections")?.text ?? "",
      /^\d+ of \d+ in use, 2 of them by task sessions; pg-task may use up to 66,/,
    );
    await Promise.all(sessions.map((session) => session.end()));
  });

  test("reports a disabled trigger, with the statement that enables it", async () => {
    const { failed, level, text, remedy } = await diagnose(
      "triggers",
      "ALTER TABLE task DISABLE TRIGGER task_wake_up",
      "ALTER TABLE task ENABLE TRIGGER task_wake_up",
    );
    assert.deepEqual([failed, level], [["triggers"], "fail"]);
    assert.match(text, /^task_wake_up on public.task is disabled/);
    await client.query("ALTER TABLE task DISABLE TRIGGER task_wake_up");
    await client.query(remedy);
    assert.deepEqual(failuresIn((await doctor(env)).lines), []);
  });

  test("prints the statements for all disabled triggers", async () => {
    const { text, remedy } = await diagnose("triggers", "ALTER TABLE task DISABLE TRIGGER USER");
    assert.match(text, /task_ready_insert .* is disabled; .*task_wake_up/);
    await client.query(remedy);
    assert.deepEqual(failuresIn((await doctor(env)).lines), []);
  });

  test("reports missing indexes, with the statements that create them", async () => {
    const indexes = async (): Promise<{ name: string; definition: string }[]> => {
      const { rows } = await client.query<{ name: string; definition: string }>(
        "SELECT indexname AS name, indexdef AS definition FROM pg_indexes WHERE tablename = 'task' AND indexdef LIKE '%ready%'",
      );
      return rows;
    };
    const before = await indexes();
    await client.query("DROP INDEX task_plan_idx, task_due_idx");
    const missing = await diagnose("indexes");
    assert.deepEqual([missing.failed, missing.level], [[], "warn"]);
    assert.match(missing.text, /^missing for due tasks, planned tasks/);
    for (const statement of missing.remedy.split("; ")) await client.query(statement);
    const made = await diagnose("indexes");
    assert.deepEqual([made.level, made.text], ["ok", "all present and valid"]);
    for (const { name } of await indexes()) await client.query(`DROP INDEX ${name}`);
    for (const { definition } of before) await client.query(definition);
  });

  test("finds indexes despite quote_all_identifiers", async () => {
    const { level, text } = await diagnose(
      "indexes",
      `ALTER DATABASE ${target.database} SET quote_all_identifiers = on`,
      `ALTER DATABASE ${target.database} RESET quote_all_identifiers`,
    );
    assert.deepEqual([level, text], ["ok", "all present and valid"]);
  });

  test("reports an invalid index", async () => {
    const { failed, level, text } = await diagnose("indexes", markValid(false), markValid(true));
    assert.deepEqual([failed, level, text], [["indexes"], "fail", "invalid: public.task_due_idx"]);
  });

  test("reports pauses and a long backlog", async () => {
    const paused = await diagnose(
      "pauses",
      `INSERT INTO task_pause ("group") VALUES ('mail')`,
      "DELETE FROM task_pause",
    );
    assert.deepEqual([paused.level, paused.text], ["warn", 'paused: "mail"']);
    const late = await diagnose(
      "backlog",
      "INSERT INTO task (input, plan) VALUES ('', now() - interval '2 hours')",
      "DELETE FROM task",
    );
    assert.equal(late.level, "warn");
    assert.match(late.text, /^1 due, the oldest for 2 h/);
  });

  test("reports a renamed column, with the statement that renames it back", async () => {
    const { failed, level, text, remedy } = await diagnose(
      "columns",
      "ALTER TABLE task RENAME output TO outp",
      "ALTER TABLE task RENAME outp TO output",
    );
    assert.deepEqual([failed, level], [["columns"], "fail"]);
    assert.match(text, /it no longer has the column output/);
    assert.match(remedy, /ALTER TABLE "public"\."task" RENAME COLUMN … TO "output"/);
    const lostPlan = await diagnose(
      "columns",
      "ALTER TABLE task RENAME plan TO planned",
      "ALTER TABLE task RENAME planned TO plan",
    );
    assert.match(lostPlan.text, /no longer has the column plan/);
  });

  test("reports a dropped column, with the statement that adds it as pg-task defines it", async () => {
    const dropped = await createDatabase();
    const owner = await dropped.connect();
    const columns = async () => {
      const { rows } = await owner.query(
        `SELECT attname, format_type(atttypid, atttypmod), attnotnull, attgenerated, pg_get_expr(adbin, adrelid)
         FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
         WHERE attrelid = 'task'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attname`,
      );
      return rows;
    };
    const whole = await columns();
    await owner.query("INSERT INTO task (input, plan) VALUES ('', 'infinity')");
    for (const name of ["output", "key", "created", "hash", "keep", "ready", "crash", "group"]) {
      await owner.query(`ALTER TABLE task DROP COLUMN "${name}" CASCADE`);
      const { lines } = await doctor({ DATABASE_URL: dropped.url });
      const found = lines.find((line) => line.name === "columns");
      assert.equal(found?.level, "fail", `${name}: ${JSON.stringify(lines)}`);
      assert.match(found.text, /: its manager goes on until a statement needs /);
      const statements = [...found.remedy.matchAll(/if it was dropped: (ALTER TABLE .*?)(?=; if |$)/g)];
      // The output has two backslashes for each one.
      for (const [, statement = ""] of statements) await owner.query(statement.replaceAll(/\\\\/g, "\\"));
      assert.deepEqual(await columns(), whole, found.remedy);
    }
    await owner.query("ALTER TABLE task DROP COLUMN input CASCADE");
    const { lines } = await doctor({ DATABASE_URL: dropped.url });
    assert.match(
      lines.find(({ name }) => name === "columns")?.remedy ?? "",
      /TO "input"; if it was dropped, restore the table/,
    );
  });

  test("reports a zone that the server does not know", async () => {
    const { failed, level, text, remedy } = await diagnose(
      "zone",
      `ALTER DATABASE ${target.database} SET pg_task.zone = 'Europe/Belrin'`,
      `ALTER DATABASE ${target.database} RESET pg_task.zone`,
    );
    assert.deepEqual([failed, level], [["zone"], "fail"]);
    assert.match(text, new RegExp(`^pg_task\\.zone \\(DATABASE ${target.database}\\) is "Europe/Belrin"`));
    assert.match(remedy, /SELECT name FROM pg_timezone_names/);
    assert.equal((await diagnose("zone")).level, "ok");
  });

  test("reports a user's column with the name of one of pg-task's, with the RENAME that lets pg-task start", async () => {
    const { failed, level, text, remedy } = await diagnose(
      "table",
      recorded(", own columns: key created"),
      recorded(""),
    );
    assert.deepEqual([failed, level], [["table"], "fail"]);
    assert.match(
      text,
      /^"public"\."task": its column key has the name of one of pg-task's columns; its column created has/,
    );
    const rename = 'ALTER TABLE "public"."task" RENAME COLUMN';
    assert.equal(remedy, `${rename} key TO key_before; ${rename} created TO created_before`);
  });

  test("reports a user's function that keeps asynchronous triggers off", async () => {
    const { failed, level, text, remedy } = await diagnose(
      "features",
      "COMMENT ON FUNCTION task_async() IS 'mine'",
      "DROP FUNCTION task_async()",
    );
    assert.deepEqual([failed, level], [[], "warn"]);
    assert.match(text, /^asynchronous triggers are off: .*"public"\."task_async"\(\)/);
    assert.match(remedy, /: ALTER ROUTINE "public"\."task_async"\(\) RENAME TO/);
  });

  test("reports that autovacuum is disabled for the table", async () => {
    const { level, remedy } = await diagnose(
      "bloat",
      "ALTER TABLE task SET (autovacuum_enabled = false)",
      "ALTER TABLE task RESET (autovacuum_enabled)",
    );
    assert.deepEqual([level, remedy], ["warn", 'ALTER TABLE "public"."task" RESET (autovacuum_enabled)']);
  });

  test("reports a missing view", async () => {
    const { level, text } = await diagnose(
      "views",
      "ALTER VIEW task_stats RENAME TO other",
      "ALTER VIEW other RENAME TO task_stats",
    );
    assert.deepEqual([level, text], ["warn", "missing: task_stats"]);
  });

  test("reports a table of an earlier version", async () => {
    const { rows } = await client.query("SELECT obj_description('task_ready'::regproc) AS comment");
    const { level, text } = await diagnose("table", commented("pg-task version 0"), commented(rows[0].comment));
    assert.equal(level, "warn");
    assert.match(text, /is at version 0, this pg-task knows \d+/);
  });

  test("reports missing privileges, harmful settings and hidden rows, with remedies", async () => {
    const role = await createRole(client, `doctor_${target.database}`);
    const given = envOf(database, role);
    await client.query(`GRANT SELECT ON task, task_pause, task_turn TO ${role}`);
    const rights = await diagnose("rights", "", "", given);
    assert.deepEqual([rights.failed, rights.level], [["rights"], "fail"]);
    assert.match(rights.text, /lacks INSERT, UPDATE, DELETE on "public"."task"/);
    assert.equal(rights.remedy, `ALTER TABLE "public"."task" OWNER TO "${role}"`);
    await client.query(`GRANT INSERT, UPDATE, DELETE ON task TO ${role}`);
    const sequence = await diagnose("rights", "", "", given);
    assert.match(sequence.text, /lacks USAGE on public.task_id_seq/);
    await client.query(sequence.remedy);
    const owner = await diagnose("rights", "", "", given);
    assert.deepEqual([owner.failed, owner.level], [[], "warn"]);
    const hidden = await diagnose(
      "row security",
      "ALTER TABLE task ENABLE ROW LEVEL SECURITY; CREATE POLICY all_rows ON task USING (true)",
      "DROP POLICY all_rows ON task; ALTER TABLE task DISABLE ROW LEVEL SECURITY",
      given,
    );
    assert.deepEqual([hidden.failed, hidden.level], [["row security"], "fail"]);
    for (const [name, value] of [
      ["default_transaction_read_only", "on"],
      ["statement_timeout", "5s"],
    ]) {
      const { level, text } = await diagnose(
        "role settings",
        `ALTER ROLE ${role} SET ${name} = '${value}'`,
        `ALTER ROLE ${role} RESET ${name}`,
        given,
      );
      assert.equal(level, "warn");
      assert.ok(text.startsWith(`${name} is ${value}: `), text);
    }
  });

  test("shows how to reset a harmful setting where it is defined", async () => {
    for (const place of [
      `DATABASE ${target.database}`,
      `ROLE ${target.user}`,
      `ROLE ${target.user} IN DATABASE ${target.database}`,
    ]) {
      const { remedy } = await diagnose("role settings", `ALTER ${place} SET idle_session_timeout = '1h'`);
      assert.equal(remedy, `ALTER ${place} RESET idle_session_timeout`);
      await client.query(remedy);
    }
  });

  test("exits with the code of the first failure", async () => {
    const unreached = await doctor({ DATABASE_URL: "postgresql://x@127.0.0.1:1/x" });
    assert.equal(unreached.code, 3);
    assert.deepEqual(
      unreached.lines.map(({ level, name }) => `${level} ${name}`),
      ["ok configuration", "fail reached", "fail table"],
    );
    const empty = await createDatabase("empty");
    const missing = await doctor({ DATABASE_URL: empty.url });
    assert.equal(missing.code, 4);
    assert.match(missing.lines.at(-1)?.text ?? "", /no table "public"/);
    assert.equal(missing.lines.at(-1)?.remedy, "run pg-task start");
  });

  test("prints JSON, and on a terminal a line per check with its remedy below", async () => {
    const { sections, exitCode } = JSON.parse((await run("doctor", "--json")).stdout);
    assert.deepEqual([exitCode, sections.length], [4, 2]);
    assert.match(
      await shownBy(["doctor"]),
      /\n {2}warn {2}leader: cluster pg_task has no leader\n {8}do: run pg-task start\n/,
    );
  });
});

describe("pg-task init", () => {
  test("writes a valid file that changes no defaults", async () => {
    const cwd = await temporaryFolder();
    const file = join(cwd, "pg_task.json");
    const { code, stdout } = await cli(["init"], { cwd });
    assert.deepEqual([code, stdout], [0, `wrote ${file}: edit it, then run pg-task check\n`]);
    assert.equal((await stat(file)).mode & 0o777, 0o600);
    const without = JSON.parse((await run("check", "--json")).stdout);
    const withFile = JSON.parse((await cli(["check", "--json"], { env, cwd })).stdout);
    assert.deepEqual({ ...withFile, file: null }, without);
  });

  test("explains every parameter, and stays valid when uncommented", async () => {
    const cwd = await temporaryFolder();
    const file = join(cwd, "mine.json");
    await cli(["init", "--config", "mine.json"], { cwd });
    const text = await readFile(file, "utf8");
    for (const { name } of fileParameters) assert.ok(text.includes(`  // "${name}": `), name);
    const uncommented = text
      .replaceAll(/^ {2}\/\/ ("(?:pg_task|pg_conf|pg_work|pg_http)\.\w+": .*)$/gm, "  $1")
      .replaceAll(/^ {4}\/\/ (\{ .* \},?)$/gm, "    $1");
    assert.equal(uncommented.split("\n").filter((line) => /^ {2}"pg_/.test(line)).length, fileParameters.length + 1);
    await writeFile(file, uncommented);
    const { stdout, stderr } = await cli(["check", "--json", "-c", "mine.json"], { env, cwd });
    assert.equal(stderr, "");
    assert.equal(JSON.parse(stdout).entries.length, 2);
  });

  test("never overwrites", async () => {
    const cwd = await temporaryFolder();
    await writeFile(join(cwd, "pg_task.json"), "[]");
    await failsWith(cli(["init"], { cwd }), 2, /already exists and was not changed/);
    assert.equal(await readFile(join(cwd, "pg_task.json"), "utf8"), "[]");
    await failsWith(cli(["init", "-c", "no/such/folder.json"], { cwd }), 2, /: no such file or folder \(ENOENT\)$/m);
  });
});
