import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, beforeEach, describe } from "node:test";
import { lockClasses } from "../../../../src/shared/postgres/advisoryLocks.js";
import { connectClient } from "../../../../src/shared/postgres/client.js";
import { taskDetailSchema } from "../../../../src/web/api/taskSchemas.js";
import { cli, commandsOn } from "../../../support/cli.js";
import { createDatabase, serverTarget } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { PgTask } from "../../../support/pgTask.js";
import { asManager, eventually, until, Tasks } from "../../../support/tasks.js";
import { token, Web } from "../../../support/web.js";
import { temporaryFolder } from "../../../support/temporaryFolder.js";

interface Reason {
  readonly code: string;
  readonly text: string;
  readonly remedy?: string;
}

const pgTask = new PgTask();
const database = await createDatabase();
const client = await database.connect();
const tasks = await Tasks.create(client);
const { host, port, user, database: name } = database.target;
const { env, run, shownBy } = commandsOn(database);

/** Returns the reasons that `why` reports for a task. */
async function explain(id: string, cwd?: string): Promise<Reason[]> {
  const { stdout } = await cli(["why", id, "--json"], cwd === undefined ? { env } : { cwd });
  return JSON.parse(stdout).reasons;
}

const firstReason = async (id: string): Promise<Reason | undefined> => (await explain(id))[0];

const codes = (reasons: readonly Reason[]): string[] => reasons.map(({ code }) => code);

/** The end of the text of a task that was not tried again. */
const note = (tries: string, list: string): string =>
  `; it was not tried again, although its retry allows ${tries}: its error is not among those to retry (${list}), or is one that never is (docs/failure.md)`;

const endsWith = async (id: string, end: string): Promise<void> => {
  const { text = "" } = (await firstReason(id)) ?? {};
  assert.ok(text.endsWith(end), text);
};

beforeEach(() => client.query("DELETE FROM task"));

test("reports that there is no leader", async () => {
  const [id = ""] = await tasks.insert({ input: "SELECT 1" });
  assert.deepEqual(codes(await explain(id)), ["no-leader"]);
});

test("reports a late task before a manager expires it", async () => {
  for (const plan of ["2020-01-01", "-infinity"]) {
    const [id = ""] = await tasks.insert({ input: "SELECT 1", plan });
    assert.deepEqual(codes(await explain(id)), ["too-late", "no-leader"], plan);
    await client.query("DELETE FROM task");
  }
});

test("cuts an error that nobody would read", async () => {
  const [id = ""] = await tasks.insert({ input: "SELECT 1", state: "FAIL", error: "é".repeat(1001) });
  const { text = "" } = (await firstReason(id)) ?? {};
  assert.ok(text.endsWith(`: ${"é".repeat(1000)}…`), text);
  await client.query("UPDATE task SET error = $1", ["é".repeat(1000)]);
  const whole = await firstReason(id);
  assert.ok(whole?.text.endsWith(`: ${"é".repeat(1000)}`), whole?.text);
});

test("names the command that works if a finished task's key waits", async () => {
  const [id = "", next = ""] = await tasks.insert(
    { input: "SELECT 1", key: "k", state: "FAIL" },
    { input: "SELECT 1", key: "k", plan: "infinity" },
  );
  const [reason] = await explain(id);
  assert.equal(reason?.remedy, `pg-task run-now ${next} runs the waiting task with the same key`);
  const { code, stdout } = await run("run-now", next);
  assert.deepEqual([code, stdout], [0, `${next}\tchanged\tdue now\n`]);
  await client.query("DELETE FROM task WHERE id = $1", [next]);
  assert.equal((await explain(id))[0]?.remedy, `pg-task retry ${id} runs it again`);
});

test("says that a schedule is paused, how to resume it, and what becomes of a retry", async () => {
  const [cron = "", every = "", tried = "", once = ""] = await tasks.insert(
    { input: "SELECT 1", rule: "0 5 1 1 *", zone: "UTC" },
    { input: "SELECT 1", repeat: "1 day", plan: "2199-01-01" },
    { input: "SELECT 1/0", repeat: "1 day", plan: "2199-01-01", retry: 3 },
    { input: "SELECT 1", plan: "infinity" },
  );
  const failed = "UPDATE task SET attempt = 2, due = '2020-01-01', error = 'ERROR:  no' WHERE id = $1";
  await asManager(client, failed, [tried]);
  assert.equal((await run("pause", "--schedule", [cron, every, tried].join())).code, 0);
  for (const id of [cron, every]) {
    assert.deepEqual(await firstReason(id), {
      code: "schedule-paused",
      text: "its schedule is paused",
      remedy: `pg-task resume --schedule ${id} plans its next time; pg-task run-now ${id} ends the pause, too, and runs it now`,
      action: { name: "resume-schedule" },
    });
  }
  assert.deepEqual(await firstReason(tried), {
    code: "schedule-paused",
    text: "its schedule is paused, and its retry 2 of 3 waits: ERROR:  no",
    remedy: `pg-task resume --schedule ${tried} plans its next time and drops this retry; pg-task run-now ${tried} ends the pause, too, and tries it now`,
    action: { name: "resume-schedule" },
  });
  assert.equal((await firstReason(once))?.code, "never-due");
  assert.equal((await run("resume", "--schedule", cron)).code, 0);
  assert.equal((await firstReason(cron))?.code, "not-due");
});

test("reports an orphan, and what can keep a manager from rescuing it", async () => {
  const { rows } = await client.query<{ id: string }>(
    "INSERT INTO task (input, state, owner) VALUES ('', 'WORK', '2147483647 2001-01-01T00:00:00.000000') RETURNING id",
  );
  const [{ id } = { id: "" }] = rows;
  const [reason, ...more] = await explain(id);
  assert.deepEqual([reason?.code, more], ["orphaned", []]);
  assert.equal(
    reason?.text,
    "the server process 2147483647 that ran it is gone, or serves another table of which this one is a copy",
  );
  assert.match(reason.remedy ?? "", new RegExp(`"rescue rejected by the server, retrying" with the id ${id}`));
  // A row that was copied from another database, whose owner still runs the task there.
  const elsewhere = await connectClient(serverTarget(), { applicationName: "test" });
  const { rows: owners } = await elsewhere.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
  await client.query("UPDATE task SET owner = $1", [`${owners[0]?.pid} 2001-01-01T00:00:00.000000`]);
  assert.deepEqual(codes(await explain(id)), ["orphaned"]);
  const { stdout } = await run("doctor", "--json");
  assert.match(stdout, /in TAKE or WORK without a session/);
  await elsewhere.end();
});

/** A configuration with these tables. */
const configOf = (...tables: string[]): string =>
  JSON.stringify({
    url: database.url,
    "pg_conf.max": 2,
    "pg_task.json": tables.map((table) => ({ data: name, user, table })),
  });

test("counts only the sessions of the configured tables towards pg_conf.max", async () => {
  const [id = ""] = await tasks.insert({ input: "SELECT 1" });
  const cwd = await temporaryFolder();
  const reasonsFor = async (...tables: string[]): Promise<string[]> => {
    await writeFile(join(cwd, "pg_task.json"), configOf(...tables));
    const { stdout } = await cli(["why", id, "--table", "task", "--json"], { cwd });
    return codes(JSON.parse(stdout).reasons);
  };
  const sessions = await Promise.all(
    ["others one", "others two", "others", "third three"].map((session) =>
      connectClient(database.target, { applicationName: `pg_task public ${session}` }),
    ),
  );
  assert.deepEqual(await reasonsFor("task"), ["no-leader"]);
  assert.deepEqual(await reasonsFor("task", "third"), ["no-leader"]);
  assert.deepEqual(await reasonsFor("task", "others"), ["no-leader", "session-limit"]);
  await Promise.all(sessions.map((session) => session.end()));
});

const long = { input: "SELECT pg_sleep(60)", group: "one" };
const short = { input: "SELECT 2", group: "two" };
const wide = { ...long, max: 10 };

for (const [what, max, planned, code, text] of [
  [
    "the database's pg_task.run is reached",
    8,
    [long, short],
    "run-limit",
    "the table runs 1 task, and pg_task.run allows 1",
  ],
  ["pg_conf.max is reached", 1, [long, short], "session-limit", "pg_conf.max allows 1 for all tables together"],
  [
    "the free sessions are reserved for groups that run nothing",
    4,
    [wide, wide, wide, wide],
    "reserve",
    "its group already runs something, and 1 of 4 sessions is reserved for groups that run nothing (pg_conf.reserve)",
  ],
] as const) {
  test(`reports that ${what}`, async () => {
    if (code === "run-limit") await client.query(`ALTER DATABASE ${name} SET pg_task.run = 1`);
    const config = { url: database.url, "pg_conf.max": max };
    await pgTask.start({ ...config, "pg_task.sleep": 100 });
    const cwd = await temporaryFolder();
    await writeFile(join(cwd, "pg_task.json"), JSON.stringify(config));
    const ids = await tasks.insert(...planned);
    for (const id of ids.slice(0, -1)) await tasks.sleeping(id);
    const [reason, ...more] = await explain(ids.at(-1) ?? "", cwd);
    assert.deepEqual([reason?.code, more], [code, []]);
    assert.ok(reason?.text.endsWith(text), reason?.text);
    await cli(["stop", ...ids], { cwd });
    await tasks.ended(...ids);
    await pgTask.stop();
    await client.query(`ALTER DATABASE ${name} RESET pg_task.run`);
  });
}

test("reports which share a task belongs to, and how many sessions it has", async () => {
  const cwd = await temporaryFolder();
  for (const [max, groups, expected] of [
    [1, ["a/1", "a/2"], ["session-limit", "share"]],
    [4, ["a/1", "a/2", "a/3", "a/4"], ["reserve"]],
  ] as const) {
    const config = { url: database.url, "pg_conf.max": max, "pg_task.share": "/" };
    await pgTask.start({ ...config, "pg_task.sleep": 100 });
    await writeFile(join(cwd, "pg_task.json"), JSON.stringify(config));
    const ids = await tasks.insert(...groups.map((group) => ({ ...long, group })));
    for (const id of ids.slice(0, -1)) await tasks.sleeping(id);
    const reasons = await explain(ids.at(-1) ?? "", cwd);
    assert.deepEqual(codes(reasons), expected);
    const text = {
      1: 'its share "a" has 1 of 1 sessions, and the next one goes to the share with the fewest for its weight (pg_task.share)',
      4: 'its share "a" already runs something, and 1 of 4 sessions is reserved for shares that run nothing (pg_conf.reserve)',
    }[max];
    assert.equal(reasons.at(-1)?.text, text);
    await cli(["stop", ...ids], { cwd });
    await tasks.ended(...ids);
    await pgTask.stop();
  }
});

describe("while pg-task runs,", () => {
  before(() =>
    pgTask.start({
      url: database.url,
      "pg_task.sleep": 100,
      "pg_http.listen": "127.0.0.1:0",
      "pg_http.token": token,
    }),
  );

  test("explains a negative max, before and during the pause", async () => {
    const [first = "", second = ""] = await tasks.insert(
      { input: "SELECT pg_sleep(60)", group: "slow", max: -3_600_000 },
      { input: "SELECT 2", group: "slow", max: -3_600_000 },
    );
    await tasks.sleeping(first);
    const [limited] = await explain(second);
    assert.equal(limited?.code, "group-limit");
    assert.match(limited?.text ?? "", /its max allows 0 besides it, since a negative max is a pause$/);
    await client.query("SELECT pg_cancel_backend(pid) FROM task WHERE id = $1", [first]);
    await tasks.ended(first);
    await tasks.until([second], ({ plan }) => Date.parse(`${plan}Z`) > Date.now() + 60_000);
    const [paused, ...more] = await explain(second);
    assert.deepEqual([paused?.code, more], ["not-due", []]);
    assert.match(paused?.text ?? "", /after each run its group pauses for 3600000 ms/);
  });

  test("names the backend of a remote task, and the error of one whose server is unreachable", async () => {
    const remote = `host=${host} port=${port} user=${user} dbname=${name}`;
    const [running = "", refused = ""] = await tasks.insert(
      { input: "SELECT pg_sleep(60)", group: "there", remote },
      { input: "SELECT 1", group: "nowhere", remote: `${remote} port=1` },
    );
    // The remote backend's pid is written to the row as soon as it is known.
    const [{ pid } = { pid: 0 }] = await eventually<{ pid: number }>(
      client,
      `SELECT a.pid FROM task AS t JOIN pg_stat_activity AS a USING (pid)
     WHERE t.id = ${running} AND a.state = 'active' AND a.query LIKE '%pg_sleep(60)%'`,
      (rows) => rows.length === 1,
    );
    const [reason] = await explain(running);
    assert.equal(reason?.code, "running");
    assert.match(reason?.text ?? "", new RegExp(`on its remote server, in server process ${pid}$`));
    await tasks.ended(refused);
    const [failed] = await explain(refused);
    assert.equal(failed?.code, "ended");
    assert.match(failed?.text ?? "", /failed at [^:]+:.*: ERROR: .*Connection refused/);
    await run("stop", running);
    await tasks.ended(running);
  });

  test("says which list decides why a failed task with tries left was not tried again", async () => {
    const [own = "", setting = "", spent = "", once = ""] = await tasks.insert(
      { input: "SELECT 1/0", retry: 3, sqlstate: "{40,55P03}" },
      { input: "SELECT nothing", retry: 1 },
      { input: "SELECT 1/0", retry: 1, backoff: "1 ms" },
      { input: "SELECT 1/0" },
    );
    await tasks.ended(own, setting, spent, once);
    const ownNote = note("3 more tries", "its sqlstate {40,55P03}");
    await endsWith(own, `: ERROR:  division by zero${ownNote}`);
    const anyway = /^pg-task retry (\d+) runs it again; to have every error tried again, first: (UPDATE .*;)$/;
    const [, retried, statement = ""] = anyway.exec((await firstReason(own))?.remedy ?? "") ?? [];
    assert.equal(retried, own);
    await client.query(statement);
    await endsWith(own, note("3 more tries", "its sqlstate {}"));
    await client.query("UPDATE task SET sqlstate = '{40,55P03}' WHERE id = $1", [own]);
    assert.equal((await firstReason(spent))?.remedy, `pg-task retry ${spent} runs it again`);
    await endsWith(setting, note("1 more try", 'pg_task.sqlstate, which is now "!42,!0A"'));
    for (const id of [spent, once]) await endsWith(id, ": ERROR:  division by zero");
    await client.query(`ALTER DATABASE ${name} SET pg_task.sqlstate = '40'`);
    await endsWith(setting, note("1 more try", 'pg_task.sqlstate, which is now "40"'));
    await client.query(`ALTER DATABASE ${name} RESET pg_task.sqlstate`);
    assert.ok((await shownBy(["show", own])).includes(`\n${ownNote.slice(2)}\n`));
    assert.doesNotMatch(await shownBy(["show", spent]), /tried again/);
    // The error of such a task says itself why.
    const [replaced = ""] = await tasks.insert({
      input: "",
      state: "FAIL",
      retry: 2,
      error: "ERROR:  no\nDETAIL:  Task 9 with the same key takes its place.",
    });
    await endsWith(replaced, ": ERROR:  no");
  });

  test("a failed query in a rule is called that, and no list of SQLSTATEs is blamed for it", async () => {
    const [id = ""] = await tasks.insert({ input: "SELECT 1", retry: 2, rule: "SELECT now() / 0" });
    await tasks.ended(id);
    const { text = "", remedy } = (await firstReason(id)) ?? {};
    assert.match(
      text,
      /^the query in its rule failed at .*: ERROR: {2}operator does not exist: .*; its schedule has ended$/,
    );
    assert.equal(remedy, `pg-task retry ${id} runs the query again`);
    assert.doesNotMatch(await shownBy(["show", id]), /tried again/);
  });

  test("a query that returns no time before the first run has ended its schedule", async () => {
    const [id = ""] = await tasks.insert({ input: "SELECT 1", rule: "SELECT NULL::timestamptz" });
    await tasks.ended(id);
    const { text = "" } = (await firstReason(id)) ?? {};
    assert.match(text, /^it is GONE since .*: ERROR: {2}rule returned no time; its schedule has ended$/);
  });

  test("the remedy of a failed run of a schedule changes the row that goes on with it", async () => {
    // A task is also the parent of other schedules that it inserts.
    const other = `INSERT INTO task (input, rule, "group") VALUES ('SELECT 2', '@yearly', 'other')`;
    const [first = ""] = await tasks.insert({
      input: `${other}; COMMIT; SELECT nothing`,
      retry: 2,
      rule: "@yearly",
    });
    await client.query("UPDATE task SET plan = now() WHERE id = $1", [first]);
    await tasks.ended(first);
    const remedy = (await firstReason(first))?.remedy ?? "";
    const again =
      /^pg-task retry \d+ runs it again; to have every error of the schedule's next runs tried again: (.*;)$/;
    await client.query(again.exec(remedy)?.[1] ?? remedy);
    const { rows } = await client.query("SELECT id::text AS id, sqlstate::text AS list FROM task WHERE parent = $1", [
      first,
    ]);
    assert.equal(rows.filter(({ list }) => list === "{}").length, 1);
    const next = rows.find(({ list }) => list === "{}").id;
    assert.ok(remedy.endsWith(` WHERE id = ${next};`), remedy);
    // The row of a later run is found, too.
    await client.query("UPDATE task SET plan = now(), sqlstate = '{40}' WHERE id = $1", [next]);
    await tasks.ended(next);
    const later = await client.query<{ id: string }>(
      "SELECT id::text AS id FROM task WHERE parent = $1 AND input <> 'SELECT 2'",
      [next],
    );
    assert.ok((await firstReason(first))?.remedy?.endsWith(` WHERE id = ${later.rows[0]?.id};`));
    await client.query("DELETE FROM task WHERE state = 'PLAN'");
    assert.match((await firstReason(first))?.remedy ?? "", /in the row that pg-task list --schedules shows$/);
  });

  test("an ended run of a schedule names the task that goes on with it", async () => {
    const [first = ""] = await tasks.insert({ input: "SELECT 1/0", rule: "@yearly" });
    await client.query("UPDATE task SET plan = now() WHERE id = $1", [first]);
    await tasks.ended(first);
    const {
      rows: [next],
    } = await client.query<{ id: string; year: string }>(
      "SELECT id::text AS id, extract(year FROM plan)::text AS year FROM task WHERE parent = $1",
      [first],
    );
    const { id = "", year = "" } = next ?? {};
    assert.match(
      (await firstReason(first))?.text ?? "",
      new RegExp(`: ERROR:  division by zero; the next run of its schedule is task ${id}, planned for ${year}-`),
    );
    assert.equal((await run("pause", "--schedule", id)).code, 0);
    await endsWith(first, `: ERROR:  division by zero; its schedule is paused in task ${id}`);
    await client.query("UPDATE task SET input = 'SELECT 1' WHERE id = $1", [id]);
    await endsWith(first, ": ERROR:  division by zero");
    await client.query("UPDATE task SET input = 'SELECT pg_sleep(3600)' WHERE id = ANY ($1)", [[first, id]]);
    await client.query("UPDATE task SET plan = now() WHERE id = $1", [id]);
    await tasks.until([id], ({ state }) => state === "WORK");
    await endsWith(first, `; the next run of its schedule is task ${id}, which runs now`);
    await run("stop", id);
    await tasks.ended(id);
    await endsWith(first, ": ERROR:  division by zero");
  });

  test("reports the tasks for whose end a task waits, and the error before a retry", async () => {
    const [first = ""] = await tasks.insert({ input: "SELECT 1", plan: "infinity", group: "explained first" });
    const [second = ""] = await tasks.insert({ input: "SELECT 2", after: `{${first}}`, group: "explained second" });
    await until(client, `SELECT wait FROM task WHERE id = ${second} AND wait = 0`, (rows) => rows.length === 1);
    const [waits] = await explain(second);
    assert.deepEqual([waits?.code, waits?.text], ["waits-for-others", `it waits for the end of ${first} (PLAN)`]);
    const { stdout } = await run("run-now", second);
    assert.match(stdout, /^\d+\trefused\t.*it waits for other tasks/m);
    const [failing = ""] = await tasks.insert({
      input: "SELECT 1/0",
      retry: 3,
      backoff: "1 hour",
      group: "explained retry",
    });
    await until(client, `SELECT attempt FROM task WHERE id = ${failing} AND attempt = 1`, (rows) => rows.length === 1);
    const [retry] = await explain(failing);
    assert.equal(retry?.code, "retry");
    assert.match(
      retry?.text ?? "",
      /^it has failed, and its retry 1 of 3 is planned for .*: ERROR: {2}division by zero$/,
    );
  });

  test("the API also reports why a task waits, and nothing for a finished one", async () => {
    const web = await Web.connect(pgTask);
    await client.query(`INSERT INTO task_pause ("group", reason) VALUES ('halted', 'why not')`);
    const [waits = "", ran = ""] = await tasks.insert({ input: "SELECT 1", group: "halted" }, { input: "SELECT 2" });
    await tasks.ended(ran);
    const path = `/api/tables/${await web.tableId()}/tasks`;
    const page = await web.get(taskDetailSchema, `${path}/${waits}`);
    assert.equal(page.reasons.length, 1);
    assert.match(page.reasons[0]?.text ?? "", /^its group "halted" has been paused since .*: why not$/);
    assert.deepEqual(
      (await web.get(taskDetailSchema, `${path}/${ran}`)).reasons.map(({ code }) => code),
      ["ended"],
    );
  });

  test("reports a finished run whose result the server rejects", async () => {
    await client.query(`
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON task FOR EACH ROW WHEN (NEW.state = 'DONE') EXECUTE FUNCTION refuse()`);
    const [id = ""] = await tasks.insert({ input: "SELECT 1" });
    await pgTask.logged(({ msg }) => msg === "result rejected by the server, retrying");
    // The manager shows what it has logged in the next statement.
    let found = await explain(id);
    while (codes(found)[0] !== "rejected") found = await explain(id);
    assert.deepEqual(codes(found), ["rejected"]);
    assert.match(
      found[0]?.text ?? "",
      /, its run has ended, and the server rejects its result: a trigger or constraint of yours .*, perhaps refuse$/,
    );
    // The same holds when the session runs another task.
    const [other = ""] = await tasks.insert({ input: "SELECT pg_sleep(60)", group: "other" });
    await tasks.sleeping(other);
    assert.deepEqual(codes(await explain(id)), ["rejected"]);
    assert.deepEqual(codes(await explain(other)), ["running"]);
    await client.query("DROP TRIGGER refuse ON task; DROP FUNCTION refuse()");
    await run("stop", other);
    await tasks.ended(id);
    // Its cancellation must not hit the next test's task, which would then run again.
    await tasks.released(other);
    await eventually(
      client,
      `SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = ${lockClasses.rejectedResult}::bigint::oid
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
      (rows) => rows.length === 0,
    );
  });

  test("reports a finished run whose result is not written because its row is locked", async () => {
    await client.query("SELECT pg_advisory_lock(7)");
    const [id = ""] = await tasks.insert({ input: "SELECT pg_advisory_lock_shared(7)" });
    await eventually(client, `SELECT FROM task WHERE id = ${id} AND state = 'WORK'`, (rows) => rows.length === 1);
    const holder = await database.connect();
    await holder.query("BEGIN");
    await holder.query("SELECT FROM task WHERE id = $1 FOR UPDATE", [id]);
    await client.query("SELECT pg_advisory_unlock(7)");
    // `unwritten` is reported once the session has been idle for a second.
    let found = await explain(id);
    while (codes(found)[0] === "running") found = await explain(id);
    assert.deepEqual(codes(found), ["unwritten"]);
    assert.match(found[0]?.text ?? "", /has ended, and its result is not written yet$/);
    await holder.query("COMMIT");
    await tasks.ended(id);
  });

  test("does not report the lock that the manager itself holds while it claims the task", async () => {
    await client.query(`
    CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$;
    CREATE TRIGGER hold_up BEFORE UPDATE ON task FOR EACH ROW WHEN (NEW.data = 'held') EXECUTE FUNCTION hold_up();
    SELECT pg_advisory_lock(7)`);
    const [id = ""] = await tasks.insert({ input: "SELECT 1", data: "held" });
    await eventually(
      client,
      `SELECT FROM pg_stat_activity WHERE datname = current_database()
     AND application_name LIKE 'pg\\_work %' AND wait_event = 'advisory'`,
      (rows) => rows.length > 0,
    );
    assert.deepEqual(codes(await explain(id)), ["due"]);
    await client.query("SELECT pg_advisory_unlock(7); DROP FUNCTION hold_up CASCADE");
    await tasks.ended(id);
  });

  test("names the triggers that may suppress updates of a due task", async () => {
    await client.query(`
    CREATE FUNCTION keep_back() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
    CREATE TRIGGER keep_back BEFORE UPDATE ON task FOR EACH ROW WHEN (NEW.data = 'kept') EXECUTE FUNCTION keep_back()`);
    const [id = ""] = await tasks.insert({ input: "SELECT 1", data: "kept" });
    const [reason, ...more] = await explain(id);
    await client.query("DROP FUNCTION keep_back CASCADE");
    assert.deepEqual(more, []);
    assert.equal(reason?.code, "due");
    assert.match(reason?.text ?? "", /one of your triggers on the table \(keep_back\) suppresses/);
    await tasks.ended(id);
  });
});
