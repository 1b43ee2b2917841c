import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { newName, until, only, type NewTask } from "../support/tasks.js";

const { pgTask, client, tasks } = await serve({ "pg_task.output": "1kB" });

interface Tried {
  readonly id: string;
  readonly state: string;
  readonly attempt: number | null;
  readonly error: string | null;
  readonly output: string | null;
}

const tried = (id: string): string =>
  `SELECT id, state::text AS state, attempt, error, output FROM task WHERE id = ${id}`;
const row = (id: string): Promise<Tried> => tasks.fields(id, "id, state::text AS state, attempt, error, output");

/** Inserts a task, and waits until it waits for a retry. */
async function failOnce(task: NewTask): Promise<Tried> {
  const [id = ""] = await tasks.insert({ group: task.input, ...task });
  return only(await until<Tried>(client, tried(id), ([found]) => found?.state === "PLAN" && found.error !== null));
}

/** Creates a sequence that counts the tries of a task, because a rollback does not undo `nextval`. */
async function counter(): Promise<{ readonly name: string; readonly read: () => Promise<number> }> {
  const name = newName();
  await client.query(`CREATE SEQUENCE ${name}`);
  const count = `SELECT (CASE WHEN is_called THEN last_value ELSE 0 END)::integer FROM ${name}`;
  return { name, read: () => tasks.value(count) };
}

/** Runs a task to its end, and returns how often it was tried and its last row. */
async function runTries(input: (sequence: string) => string, more: Omit<NewTask, "input">): Promise<[number, Tried]> {
  const { name, read } = await counter();
  const { id } = await tasks.run(input(name), { group: name, backoff: "1 ms", ...more });
  return [await read(), await row(id)];
}

const divide = (sequence: string): string => `SELECT nextval('${sequence}'); SELECT 1/0`;

/** Makes a trigger refuse the retries of tasks with these data, and inserts such a task. */
async function insertRefused(data: string, body: string): Promise<string> {
  await client.query(`
    CREATE FUNCTION "${data}"() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN ${body} END$$;
    CREATE TRIGGER "${data}" BEFORE UPDATE OF attempt ON task FOR EACH ROW WHEN (NEW.data = '${data}') EXECUTE FUNCTION "${data}"()`);
  return await tasks.add("SELECT 7/0", { retry: 1, backoff: "1 ms", data, group: data });
}

// It takes half a minute until the task becomes FAIL, so the other tests come first.
const refusedId = await insertRefused("refused", "RAISE 'no more tries';");

test("a task without retry is tried once", async () => {
  const [tries, { state, attempt }] = await runTries(divide, {});
  assert.deepEqual([tries, state, attempt], [1, "FAIL", null]);
});

test("a task is tried again as often as retry says, then it is FAIL", async () => {
  const [tries, { state, attempt, error }] = await runTries(divide, { retry: 3 });
  assert.deepEqual([tries, state, attempt], [4, "FAIL", 3]);
  assert.match(error ?? "", /^ERROR: {2}division by zero\n/);
});

test("the first try without error ends the task", async () => {
  const [tries, { state, attempt, error, output }] = await runTries(
    (sequence) => `SELECT 1 / (nextval('${sequence}') - 2)`,
    { retry: 5 },
  );
  assert.deepEqual([tries, state, attempt, error, output], [1, "DONE", null, null, "-1"]);
  const [more, later] = await runTries((sequence) => `SELECT 1 / (nextval('${sequence}') / 3)`, { retry: 5 });
  assert.deepEqual([more, later.state, later.attempt, later.error, later.output], [3, "DONE", 2, null, "1"]);
});

test("each try is rolled back, and the effect of the last one remains", async () => {
  await client.query("CREATE TABLE effect (number integer)");
  const [tries] = await runTries(
    (sequence) => `INSERT INTO effect SELECT nextval('${sequence}'); SELECT 1 / (currval('${sequence}') / 3)`,
    { retry: 5 },
  );
  assert.equal(tries, 3);
  assert.deepEqual((await client.query("SELECT number FROM effect")).rows, [{ number: 3 }]);
});

test("a task with delete is removed after a retry that has neither output nor error", async () => {
  const { name, read } = await counter();
  const id = await tasks.add(`SELECT WHERE 1 / (nextval('${name}') / 2) < 0`, {
    delete: true,
    retry: 1,
    backoff: "1 ms",
    group: name,
  });
  await tasks.removed(id);
  assert.equal(await read(), 2);
});

test("while a task waits for a retry, its row shows the last try", async () => {
  const { id, error, output, attempt } = await failOnce({ input: "SELECT 1/0", retry: 1, backoff: "20 min" });
  assert.match(error ?? "", /division by zero/);
  assert.deepEqual([output, attempt], ["", 1]);
  assert.ok(
    await tasks.holds(id, "start IS NOT NULL AND stop IS NOT NULL AND pid IS NOT NULL AND owner IS NULL AND NOT ready"),
  );
  assert.ok(await tasks.holds(id, "due = created"), "the plan of the first try is kept");
});

interface Entry {
  readonly start: string;
  readonly stop: string;
  readonly sqlstate: string;
  readonly error: string;
}

const errorsOf = (id: string) => tasks.value<readonly Entry[] | null>("SELECT errors FROM task WHERE id = $1", [id]);

test("errors has the error of each try that led to another one, also when the task is DONE", async () => {
  const failed = await runTries(divide, { retry: 2 });
  const errors = (await errorsOf(failed[1].id)) ?? [];
  assert.deepEqual(
    errors.map(({ sqlstate }) => sqlstate),
    ["22012", "22012"],
  );
  for (const { start, stop, error } of errors) {
    assert.ok(Date.parse(start) <= Date.parse(stop));
    assert.match(error, /^ERROR: {2}division by zero\n/);
  }
  const [, done] = await runTries((sequence) => `SELECT 1 / (nextval('${sequence}') / 2)`, { retry: 2 });
  assert.equal(done.state, "DONE");
  assert.equal((await errorsOf(done.id))?.length, 1);
  const [, fine] = await runTries((sequence) => `SELECT nextval('${sequence}')`, { retry: 2 });
  assert.equal(await errorsOf(fine.id), null);
});

test("errors keeps the last 20 entries, and the first 1,000 characters of each", async () => {
  const before = Array.from({ length: 20 }, (_, number) => ({ number }));
  const { id, error } = await failOnce({
    input: "DO $$BEGIN RAISE '%', repeat('\u20ac', 2000); END$$",
    retry: 1,
    backoff: "20 min",
    errors: JSON.stringify(before),
  });
  const errors = (await errorsOf(id)) ?? [];
  assert.deepEqual(errors.slice(0, 19), before.slice(1));
  assert.match(error ?? "", /^ERROR: {2}\u20ac{2000}\n/);
  assert.deepEqual(
    errors.slice(19).map((entry) => entry.error),
    [error?.slice(0, 1000)],
  );
});

test("errors that is not an array is replaced", async () => {
  for (const errors of ["null", '{"a": 1}', '"text"', "7"]) {
    const { id } = await failOnce({ input: `SELECT '${errors}', 1/0`, retry: 1, backoff: "20 min", errors });
    assert.equal((await errorsOf(id))?.length, 1, errors);
  }
});

test("the next run of a repeating task has no errors of earlier tries", async () => {
  const [, { id }] = await runTries(divide, { retry: 1, repeat: "1 day" });
  assert.equal((await errorsOf(id))?.length, 1);
  assert.ok(await tasks.successorHolds(id, "n.errors IS NULL"));
});

test("the pause is between half of backoff and backoff, and doubles with each try", async () => {
  const first = await failOnce({ input: "SELECT 1/0", retry: 1, backoff: "20 min" });
  assert.ok(await tasks.holds(first.id, "plan BETWEEN stop + interval '10 min' AND stop + interval '20 min'"));
  const fourth = await failOnce({ input: "SELECT 2/0", retry: 9, attempt: 3, backoff: "1 min" });
  assert.equal(fourth.attempt, 4);
  assert.ok(await tasks.holds(fourth.id, "plan BETWEEN stop + interval '4 min' AND stop + interval '8 min'"));
});

test("the pause is not longer than pg_task.ceiling, whatever backoff and attempt are", async () => {
  for (const backoff of ["10 years", "1 week"]) {
    const most = { retry: 2147483647, attempt: 2147483600 };
    const { id } = await failOnce({ input: `SELECT '${backoff}', 1/0`, ...most, backoff });
    assert.ok(await tasks.holds(id, "plan BETWEEN stop + interval '30 min' AND stop + interval '1 hour'"), backoff);
  }
});

test("pauses differ, so that tasks that failed together are not tried together", async () => {
  const same = { input: "SELECT 1/0", retry: 1, backoff: "20 min" };
  const waiting = await Promise.all(["a", "b", "c"].map((group) => failOnce({ ...same, group: `jitter ${group}` })));
  const { rows } = await client.query(
    `SELECT DISTINCT plan - stop FROM task WHERE id IN (${waiting.map(({ id }) => id).join()})`,
  );
  assert.equal(rows.length, 3);
});

const missing = (sequence: string): string => `SELECT nextval('${sequence}'); SELECT * FROM there_is_none`;
const unsupported = (sequence: string): string =>
  `SELECT nextval('${sequence}'); DO $$BEGIN RAISE SQLSTATE '0A000'; END$$`;
const conflict = (sequence: string): string =>
  `SELECT nextval('${sequence}'); DO $$BEGIN RAISE SQLSTATE '40P01'; END$$`;

const lists: readonly (readonly [string, (sequence: string) => string, string | null, number])[] = [
  ["by default, errors of class 42 are not retried", missing, null, 1],
  ["by default, errors of class 0A are not retried", unsupported, null, 1],
  ["a class that is listed is retried", missing, "{42}", 3],
  ["an SQLSTATE that is listed is retried", missing, "{40,42P01}", 3],
  ["an SQLSTATE that is not listed is not retried", conflict, "{55P03,57014}", 1],
  ["an excluded class is not retried", conflict, "{!40}", 1],
  ["an excluded SQLSTATE is not retried, although its class is listed", conflict, "{40,!40P01}", 1],
  ["with only exclusions, everything else is retried", missing, "{!40}", 3],
  ["an empty list retries everything", missing, "{}", 3],
];
for (const [name, input, sqlstate, expected] of lists) {
  test(name, async () => {
    const [tries, { state }] = await runTries(input, { retry: 2, ...(sqlstate === null ? {} : { sqlstate }) });
    assert.deepEqual([tries, state], [expected, "FAIL"]);
  });
}

const sleep = (sequence: string): string => `SELECT nextval('${sequence}'); SELECT pg_sleep(60)`;

test("a timeout is retried as 57014", async () => {
  const [tries, { error }] = await runTries(sleep, { retry: 1, timeout: "100 ms" });
  assert.equal(tries, 2);
  assert.match(error ?? "", /statement timeout/);
  assert.equal((await runTries(sleep, { retry: 1, timeout: "100 ms", sqlstate: "{!57014}" }))[0], 1);
});

test("too much output, COPY FROM STDIN and a stop by the user are never retried", async () => {
  const more = { retry: 2, sqlstate: "{}" };
  const wide = await runTries((sequence) => `SELECT nextval('${sequence}'), repeat('x', 2000)`, more);
  assert.match(wide[1].error ?? "", /output exceeds/);
  // The server undoes the transaction, and the sequence counts one try for each form in which the run was sent.
  assert.deepEqual([wide[1].state, wide[1].attempt], ["FAIL", null]);
  const copy = await tasks.run("CREATE TEMP TABLE c (a text); COPY c FROM STDIN", { ...more, group: "copy" });
  assert.deepEqual([copy.state, (await row(copy.id)).attempt], ["FAIL", null]);
  const id = await tasks.add("SELECT pg_sleep(60)", more);
  await tasks.sleeping(id);
  await tasks.set(id, "state = 'STOP'");
  await tasks.until([id], ({ owner, stop }) => owner === null && stop !== null);
  assert.ok(await tasks.holds(id, "state = 'STOP' AND attempt IS NULL"));
});

test("the death of its session counts in crash, not in attempt", async () => {
  const more = { retry: 9, sqlstate: "{}", group: "death" };
  const { id } = await tasks.run("SELECT pg_terminate_backend(pg_backend_pid())", more);
  assert.ok(await tasks.holds(id, "state = 'FAIL' AND crash = 3 AND attempt IS NULL"));
});

test("a retry does not move the schedule of a task with repeat or rule", async () => {
  const [tries, repeating] = await runTries(divide, { retry: 2, repeat: "1 day" });
  assert.deepEqual([tries, repeating.attempt], [3, 2]);
  const kept = "n.plan = t.created + interval '1 day' AND n.retry = 2 AND n.attempt IS NULL";
  assert.ok(await tasks.successorHolds(repeating.id, kept));
  const more = { rule: "* * * * * *", zone: "UTC", plan: "2020-01-01 00:00Z", active: "100 years" };
  const [triesOfRule, ruled] = await runTries(divide, { retry: 2, ...more });
  assert.deepEqual([triesOfRule, ruled.attempt], [3, 2]);
  await until(client, `SELECT * FROM task WHERE parent = ${ruled.id}`);
  await client.query(`UPDATE task SET state = 'STOP' WHERE rule IS NOT NULL AND state = 'PLAN'`);
});

test("a task that is stopped while it waits for a retry stays STOP", async () => {
  const { id } = await failOnce({ input: "SELECT 3/0", retry: 1, backoff: "20 min" });
  await client.query(`UPDATE task SET state = 'STOP' WHERE id = ${id}; UPDATE task SET plan = now() WHERE id = ${id}`);
  await tasks.run("SELECT 1", { group: "afterwards" });
  assert.equal((await row(id)).state, "STOP");
});

test("a retry that comes too late is GONE, with the last error as DETAIL", async () => {
  const { id } = await failOnce({ input: "SELECT 4/0", retry: 1, backoff: "20 min", active: "1 hour" });
  await tasks.set(id, "plan = now() - interval '2 hours'");
  const [gone] = await tasks.ended(id);
  assert.equal(gone?.state, "GONE");
  assert.equal(gone?.error, "ERROR:  task not active\nDETAIL:  ERROR:  division by zero\n\tSTATEMENT:  SELECT 4/0");
});

test("active counts from the plan of the retry", async () => {
  const [tries] = await runTries(divide, { retry: 1, backoff: "4 s", active: "3 s" });
  assert.equal(tries, 2);
});

test("a user can start a waiting retry at once, and the schedule keeps its place", async () => {
  const { id } = await failOnce({ input: "SELECT 5/0", retry: 1, backoff: "20 min", repeat: "1 day" });
  await tasks.set(id, "plan = now()");
  assert.equal((await tasks.end(id)).state, "FAIL");
  assert.ok(await tasks.successorHolds(id, "n.plan = t.created + interval '1 day'"));
});

test("with a negative max, the group pauses after each try, and the retry waits for the pause as well", async () => {
  const { id } = await failOnce({ input: "SELECT 6/0", retry: 1, backoff: "1 ms", max: -600_000 });
  assert.ok(await tasks.holds(id, "plan >= stop + interval '10 min'"));
});

test("pg_task.retry of the session is the default, and costs tasks without error nothing", async () => {
  await client.query("SET pg_task.retry = 2; SET pg_task.backoff = '20 min'");
  const [failed = "", fine = ""] = await tasks.insert(
    { input: "SELECT 8/0", group: "default 1" },
    { input: "SELECT 1", group: "default 2" },
  );
  await client.query("RESET pg_task.retry; RESET pg_task.backoff");
  await until<Tried>(client, tried(failed), ([found]) => found?.attempt === 1);
  assert.ok(await tasks.holds(failed, "retry = 2 AND plan > stop + interval '9 min'"));
  assert.deepEqual([(await tasks.end(fine)).state, (await row(fine)).attempt], ["DONE", null]);
});

test("a trigger that refuses the retry for a moment only delays it", async () => {
  await client.query("CREATE SEQUENCE public.refusals");
  const id = await insertRefused(
    "delayed",
    "IF nextval('public.refusals') <= 2 THEN RAISE 'not now'; END IF; RETURN NEW;",
  );
  const { state, error } = await tasks.end(id);
  assert.equal(state, "FAIL");
  assert.doesNotMatch(error ?? "", /not planned/);
  assert.ok(await tasks.holds(id, "attempt = 1"));
});

test("a trigger that refuses the retry for good makes the task FAIL, and its error says so", async () => {
  const { state, error } = await tasks.end(refusedId);
  assert.equal(state, "FAIL");
  assert.match(error ?? "", /division by zero[^]*\nERROR: {2}next run was not planned: no more tries/);
  assert.equal(pgTask.lines.filter((line) => line["id"] === refusedId).length, 1);
});
