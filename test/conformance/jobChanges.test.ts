import assert from "node:assert/strict";
import { describe } from "node:test";
import { eventually, valueOf } from "../support/tasks.js";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";

const { database, client, tasks } = await serve({ "pg_task.delete": false });

const call = <Value = boolean>(name: string, ...values: readonly unknown[]): Promise<Value> =>
  valueOf(client, `SELECT task_${name}(${values.map((_, index) => `$${index + 1}`).join(", ")})`, values);

const rare = "0 3 1 1 *";

const refused = (reason: string | RegExp) => ({ code: "55000", message: reason });
const nothing = { code: "P0002" };

const active = (key: string): Promise<{ id: string; state: string; paused: boolean }[]> =>
  tasks.rows(
    "SELECT id, state::text AS state, plan = 'infinity' AS paused FROM task WHERE key = $1 AND state IN ('PLAN', 'TAKE', 'WORK') ORDER BY id",
    [key],
  );

describe("task_pause and task_resume", () => {
  for (const [title, schedule] of [
    ["a rule", rare],
    ["an interval", "1 day"],
  ] as const) {
    test(`pauses ${title} and goes on with its next time`, async () => {
      const id = await call<string>("schedule", title, schedule, "SELECT 1");
      const { plan } = await tasks.row(id);
      assert.deepEqual([await call("pause", title), await call("pause", title)], [true, false]);
      assert.ok(await tasks.holds(id, "plan = 'infinity'"));
      assert.deepEqual([await call("resume", title), await call("resume", title)], [true, false]);
      assert.equal((await tasks.row(id)).plan, plan);
    });
  }

  test("a job that runs is paused after this run, and goes on with all its values", async () => {
    const { wait, open } = await tasks.gate();
    const first = await call<string>("schedule", "runs", "1 second", wait, null, { plan: "now", timeout: "1 hour" });
    await tasks.running(first);
    assert.deepEqual([await call("pause", "runs"), await call("pause", "runs")], [true, false]);
    await open();
    await tasks.released(first);
    const [next, ...others] = await active("runs");
    assert.deepEqual([others, next?.paused, next?.state], [[], true, "PLAN"]);
    await call("resume", "runs");
    assert.ok(await tasks.holds(next?.id ?? "", "timeout = '1 hour' AND repeat = '1 s' AND parent = " + first));
    assert.equal((await tasks.end(next?.id ?? "")).state, "DONE");
    await call("unschedule", "runs");
  });

  test("a query is paused while its task runs, and asked again when it goes on", async () => {
    const { wait, open } = await tasks.gate();
    const first = await call<string>("schedule", "query", "SELECT now() + interval '1 day'", wait);
    await tasks.until([first], ({ state, plan }) => state === "PLAN" && plan > new Date().toISOString());
    await call("run", "query");
    await tasks.running(first);
    assert.equal(await call("pause", "query"), true);
    await open();
    await tasks.released(first);
    await call("resume", "query");
    const [next] = await active("query");
    await eventually(
      client,
      `SELECT FROM task WHERE id = ${next?.id} AND plan BETWEEN now() + interval '23 hours' AND now() + interval '1 day'`,
    );
  });

  test("what is no schedule cannot be paused", async () => {
    const id = await tasks.add("SELECT 1", { key: "once", plan: "infinity" });
    await assert.rejects(
      call("pause", "once"),
      refused('the task with the key "once" cannot be changed: not a schedule'),
    );
    await assert.rejects(call("resume", "once"), refused(/not a schedule/));
    for (const change of ["pause", "resume", "run"])
      await assert.rejects(call(change, "unknown"), {
        ...nothing,
        message: 'no task waits or repeats with the key "unknown"',
      });
    await tasks.set(id, "state = 'STOP'");
  });

  test("pausing and resuming a job that starts all the time leaves one, at any moment", async () => {
    await call("schedule", "often", "1 second", "SELECT 1", null, { plan: "2000-01-01", active: "100 years" });
    for (let n = 0; n < 60; n++) {
      await call("pause", "often");
      assert.deepEqual(
        (await active("often")).filter(({ state }) => state === "PLAN").map(({ paused }) => paused),
        [true],
      );
      await call("resume", "often");
      await call("run", "often");
    }
    await call("unschedule", "often");
    await eventually(
      client,
      "SELECT FROM task WHERE key = 'often' AND state IN ('PLAN', 'TAKE', 'WORK')",
      ({ length }) => length === 0,
    );
  });
});

describe("task_run", () => {
  test("lets the task that waits start now, and says whether it was not running already", async () => {
    const { wait, open } = await tasks.gate();
    const id = await call<string>("schedule", "now", rare, wait);
    assert.equal(await call("run", "now"), true);
    await tasks.running(id);
    assert.equal(await call("run", "now"), false);
    await open();
    const next = await tasks.successor<{ id: string }>(id, "n.id");
    assert.ok(await tasks.holds(next.id, "plan = task_next(rule, zone)"));
  });

  test("refuses a task that waits for others", async () => {
    const first = await tasks.add("SELECT 1", { plan: "infinity" });
    const second = await tasks.add("SELECT 1", { key: "follows", after: `{${first}}` });
    await tasks.lookedUp(second);
    await assert.rejects(call("run", "follows"), refused(/it waits for other tasks/));
    await tasks.set(first, "plan = now()");
    await tasks.end(second);
  });
});

describe("task_stop and task_retry", () => {
  test("stops a task that waits or runs, and says of any other that it does not", async () => {
    const waiting = await tasks.add("SELECT 1", { plan: "infinity" });
    const running = await tasks.add("SELECT pg_sleep(60)");
    await tasks.sleeping(running);
    assert.deepEqual([await call("stop", waiting), await call("stop", running)], [true, true]);
    assert.equal((await tasks.released(running)).state, "STOP");
    const done = await tasks.add("SELECT 1");
    await tasks.end(done);
    assert.deepEqual(
      [await call("stop", waiting), await call("stop", done), await call("stop", 999999)],
      [false, false, false],
    );
  });

  test("runs a task that has ended again, in its row", async () => {
    const id = await tasks.add("SELECT 1/0", { retry: 0 });
    await tasks.released((await tasks.end(id)).id);
    await tasks.set(id, "input = 'SELECT 7'");
    assert.equal(await call("retry", id), true);
    assert.deepEqual([(await tasks.end(id)).output, (await tasks.row(id)).error], ["7", null]);
  });

  test("refuses a task that runs, or whose key another one has, and one that is not there", async () => {
    const { id, open } = await tasks.held();
    await assert.rejects(call("retry", id), refused(`task ${id} cannot be retried: it is running`));
    await open();
    const ended = await tasks.add("SELECT 1", { key: "taken" });
    await tasks.released((await tasks.end(ended)).id);
    const other = await tasks.add("SELECT 1", { key: "taken", plan: "infinity" });
    await assert.rejects(call("retry", ended), refused(/another task with the same key waits/));
    assert.equal(await call("retry", other), false);
    await assert.rejects(call("retry", 999999), { ...nothing, message: "there is no task 999999" });
    await call("stop", other);
  });

  test("waits for a row that another transaction has locked", async () => {
    const id = await tasks.add("SELECT 1", { plan: "infinity" });
    const other = await database.connect();
    await other.query(`BEGIN; UPDATE task SET data = 'mine' WHERE id = ${id}`);
    const stopped = call("stop", id);
    await eventually(other, "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'");
    await other.query("COMMIT");
    assert.equal(await stopped, true);
  });
});

describe("task_signal", () => {
  test("lets a task go that waits for an event, with its value, once", async () => {
    const id = await tasks.add("SELECT $1 ->> 'total'", { key: "paid 7", plan: "infinity" });
    assert.deepEqual([await call("signal", "paid 7", { total: 5 }), await call("signal", "paid 8", {})], [true, false]);
    assert.equal((await tasks.end(id)).output, "5");
    assert.equal(await call("signal", "paid 7"), false);
  });

  test("without a value, the task keeps its own", async () => {
    const id = await tasks.add("SELECT $1", { key: "own", plan: "infinity", args: "[3]" });
    assert.equal(await call("signal", "own"), true);
    assert.equal((await tasks.end(id)).output, "3");
  });

  test("leaves a paused schedule, a task that waits for others and one that is planned as they are", async () => {
    await call("schedule", "halted", rare, "SELECT 1");
    await call("pause", "halted");
    const first = await tasks.add("SELECT 1", { plan: "infinity" });
    const second = await tasks.add("SELECT 1", { key: "after", after: `{${first}}` });
    await tasks.add("SELECT 1", { key: "later", plan: "2999-01-01" });
    for (const key of ["halted", "after", "later"]) assert.equal(await call("signal", key), false);
    await tasks.set(second, "state = 'STOP'");
  });

  test("a value that is no args is refused", async () => {
    await tasks.add("SELECT 1", { key: "value", plan: "infinity" });
    await assert.rejects(call("signal", "value", "7"), {
      code: "22023",
      message: "args must be an array or an object",
    });
  });
});

const wait = async (parameters: string): Promise<Record<string, unknown> | undefined> =>
  (await client.query<Record<string, unknown>>(`CALL task_wait(${parameters})`)).rows[0];

describe("task_wait", () => {
  test("returns how the task ended, its output and its error", async () => {
    const { id, open } = await tasks.held({}, "SELECT 7");
    const other = await database.connect();
    const result = other.query(`CALL task_wait(${id})`);
    await open();
    assert.deepEqual((await result).rows, [{ state: "DONE", output: "7", error: null }]);
    const failed = await tasks.add("SELECT 1/0");
    assert.deepEqual(await wait(`${failed}, 60`), {
      state: "FAIL",
      output: "",
      error: "ERROR:  division by zero\nSTATEMENT:  SELECT 1/0",
    });
  });

  test("returns the state so far when its time is over, and none if there is no such task", async () => {
    const id = await tasks.add("SELECT 1", { plan: "infinity" });
    assert.deepEqual(await wait(`${id}, seconds => 0.1`), { state: "PLAN", output: null, error: null });
    assert.deepEqual(await wait("999999"), { state: null, output: null, error: null });
  });

  test("cannot wait in a transaction, which it would keep open", async () => {
    const id = await tasks.add("SELECT 1", { plan: "infinity" });
    await client.query("BEGIN");
    await assert.rejects(wait(`${id}, 5`), { code: "2D000" });
    await client.query("ROLLBACK");
  });
});
