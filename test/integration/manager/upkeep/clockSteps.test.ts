import assert from "node:assert/strict";
import { beforeEach } from "node:test";
import { taskTable } from "../../../../src/manager/schema/taskTable.js";
import { clockStepMs } from "../../../../src/manager/model/tuning.js";
import type { OwnedResult } from "../../../../src/manager/model/tasks.js";
import { completeFull } from "../../../../src/manager/results/completeFull.sql.js";
import { readColumnSet } from "../../../../src/manager/schema/columnSet.js";
import { ClockSteps } from "../../../../src/manager/upkeep/clockSteps.js";
import { createDatabase } from "../../../support/database.js";
import { test } from "../../../support/limitedTest.js";
import { retryPolicy } from "../../../support/retryPolicy.js";
import { only } from "../../../support/tasks.js";
import { openManager, silentLog } from "../../../support/taskTables.js";

const database = await createDatabase("task");
const user = await database.connect();
const other = await database.connect();
const manager = await openManager(database.target);
const table = taskTable("public", "task");

beforeEach(async () => {
  await user.query("TRUNCATE task RESTART IDENTITY");
});

/** Inserts a task with these columns, as SQL, whose triggers leave it as it is. Times are those of a clock a day ahead. */
async function insertAhead(columns: Readonly<Record<string, string>>): Promise<void> {
  const all = { input: "'SELECT 1'", created: "now() + interval '1 day'", ready: "false", ...columns };
  const { plan = "now()", ready, created, rule, zone, ...rest } = { zone: "'UTC'", ...all } as Record<string, string>;
  const inserted = rule === undefined ? rest : { ...rest, rule, zone };
  await user.query(
    `INSERT INTO task (${Object.keys(inserted)
      .map((name) => `"${name}"`)
      .join(", ")}) VALUES (${Object.values(inserted).join(", ")})`,
  );
  await manager.query(`UPDATE public.task SET created = ${created}, plan = ${plan}, ready = ${ready}
    WHERE id = (SELECT max(id) FROM public.task)`);
}

const replan = (): Promise<boolean> => new ClockSteps({ table, log: silentLog }).step(manager);

/** The value of this SQL for the only row, whose alias is t. */
async function value(sql: string): Promise<unknown> {
  return only((await user.query<{ value: unknown }>(`SELECT ${sql} AS value FROM task AS t`)).rows).value;
}

const everyMinute = { rule: "'* * * * *'", plan: "public.task_next('* * * * *', 'UTC', now() + interval '1 day')" };

test("a rule that waits for tomorrow's time gets its first time after now, once", async () => {
  await insertAhead(everyMinute);
  assert.equal(await replan(), true);
  assert.equal(
    await value(
      "plan > now() AND plan <= now() + interval '1 minute' AND NOT ready AND due IS NULL AND created <= now()",
    ),
    true,
  );
  assert.equal(await replan(), false);
});

test("an interval goes on in its own rhythm", async () => {
  await insertAhead({ repeat: "'1 hour'", plan: "now() + interval '1 day 10 minutes'" });
  assert.equal(await replan(), true);
  assert.equal(await value("plan > now() + interval '9 minutes' AND plan <= now() + interval '10 minutes'"), true);
});

test("an interval that counts from the end counts from now", async () => {
  await insertAhead({ repeat: "'7 days'", drift: "true", plan: "now() + interval '8 days'" });
  assert.equal(await replan(), true);
  assert.equal(await value("plan > now() + interval '6 days 23 hours' AND plan <= now() + interval '7 days'"), true);
});

test("a retry waits as long as it had to, and its schedule goes on from now", async () => {
  await insertAhead({ ...everyMinute, retry: "1" });
  await manager.query(
    "UPDATE public.task SET attempt = 1, due = plan, stop = plan, plan = plan + interval '5 minutes'",
  );
  assert.equal(await replan(), true);
  assert.equal(
    await value("plan > now() + interval '4 minutes' AND plan <= now() + interval '5 minutes' AND due <= now()"),
    true,
  );
  assert.equal(await replan(), false);
});

for (const [columns, due] of [
  [everyMinute, "now() - interval '1 minute'"],
  [{ repeat: "'1 hour'", plan: "now() + interval '1 day'" }, "now() - interval '1 hour'"],
] as const) {
  test(`a running task does not carry the wrong time on: ${Object.keys(columns)[0]}`, async () => {
    await insertAhead(columns);
    await manager.query(
      "UPDATE public.task SET state = 'WORK', owner = 'x', ready = NULL, take = plan + interval '1 s', start = plan + interval '1 s'",
    );
    assert.equal(await replan(), true);
    assert.equal(
      await value(`due <= now() AND due >= ${due} AND state = 'WORK' AND ready IS NULL AND plan > now()`),
      true,
    );
    assert.equal(await replan(), false);
  });
}

const owner = "2147483647 2001-01-01T00:00:00.000000";

/** Ends the only task, whose run began before the clock was set back, before the manager looks at the clock. */
async function end(error: string | null): Promise<void> {
  const times = "take = now() + interval '1 day 1 s', start = now() + interval '1 day 1 s'";
  await manager.query(`UPDATE public.task SET state = 'WORK', owner = '${owner}', ready = NULL, ${times}`);
  const { id, start } = only(
    (await user.query<{ id: string; start: string }>("SELECT id, start::text FROM task")).rows,
  );
  const run = { outcome: "ended", session: 1, id, owner, start, stop: start, output: null } as const;
  const results = [
    { ...run, error, sqlstate: error === null ? null : "40001", committed: error === null } as OwnedResult,
  ];
  await completeFull(manager, table, await readColumnSet(manager, table), results, { retry: retryPolicy });
}

for (const [name, columns, seconds] of [
  ["rule", everyMinute, 60],
  ["interval", { repeat: "'1 hour'", plan: "now() + interval '1 day'" }, 3600],
  ["interval that catches up", { repeat: "'1 hour'", plan: "now() + interval '1 day'", catchup: "true" }, 3600],
  ["interval from the end", { repeat: "'1 hour'", drift: "true", plan: "now() + interval '1 day'" }, 3600],
] as const) {
  test(`a task that ends before the step is noticed does not carry the wrong time on: ${name}`, async () => {
    await insertAhead({ ...columns, delete: "true" });
    await end(null);
    assert.equal(await value(`plan > now() AND plan <= now() + interval '${seconds} s' AND state = 'PLAN'`), true);
  });
}

test("a task that fails before the step is noticed does not carry the wrong time on with its next try", async () => {
  await insertAhead({ ...everyMinute, retry: "1" });
  await end("wrong");
  assert.equal(await value("due <= now() AND state = 'PLAN'"), true);
});

const kept = {
  "a rule with a given first day": { rule: "'* * * * *'", plan: "'2100-01-01Z'" },
  "an interval with a given first day": { repeat: "'1 hour'", plan: "'2100-01-01Z'" },
  "a task without a schedule": { plan: "now() + interval '1 day'" },
  "a paused schedule": { ...everyMinute, plan: "'infinity'" },
  "a rule that is a query": { rule: "'SELECT now()'", zone: "NULL", plan: "now() + interval '1 day'" },
  "a rule whose first time is the same": { rule: "'0 0 1 1 *'", plan: "public.task_next('0 0 1 1 *', 'UTC', now())" },
  "a schedule that is as old as its plan": { ...everyMinute, created: "now()" },
  "a schedule of a clock that was two hours ahead": {
    ...everyMinute,
    created: "now() + interval '2 hours'",
    plan: "public.task_next('* * * * *', 'UTC', now() + interval '2 hours')",
  },
  "an invalid rule": everyMinute,
} as const;

for (const [name, columns] of Object.entries(kept)) {
  test(`stays: ${name}`, async () => {
    await insertAhead(columns);
    if (name === "an invalid rule") await manager.query("UPDATE public.task SET rule = 'nonsense'");
    if (name === "a rule that is a query") await manager.query("UPDATE public.task SET wait = NULL");
    const before = await value("t::text");
    assert.equal(await replan(), false);
    assert.equal(await value("t::text"), before);
  });
}

test("a locked row is replanned when it is free", async () => {
  await insertAhead(everyMinute);
  await other.query("BEGIN; SELECT FROM task FOR UPDATE");
  const steps = new ClockSteps({ table, log: silentLog });
  assert.equal(await steps.step(manager), false);
  assert.notEqual(steps.pauseMs, Infinity);
  await other.query("COMMIT");
  // A timer can end a little early.
  while (steps.pauseMs > 0) await new Promise((resolve) => void setTimeout(resolve, steps.pauseMs));
  assert.equal(await steps.step(manager), true);
  assert.equal(steps.pauseMs, Infinity);
});

test("only a step back of more than the limit is one", async () => {
  const steps = new ClockSteps({ table, log: silentLog });
  assert.equal(steps.pauseMs, 0);
  await steps.step(manager);
  const start = Date.now();
  for (const ms of [0, 2 * clockStepMs, 2 * clockStepMs - 0.9 * clockStepMs, 0.2 * clockStepMs]) {
    steps.observe(start + ms);
    assert.equal(steps.pauseMs, Infinity, String(ms));
  }
  steps.observe(start - 0.9 * clockStepMs);
  assert.equal(steps.pauseMs, 0);
});

test("after a step that was seen, two hours are enough", async () => {
  const steps = new ClockSteps({ table, log: silentLog });
  await steps.step(manager);
  await insertAhead(kept["a schedule of a clock that was two hours ahead"]);
  steps.observe(Date.now() + 2 * clockStepMs);
  steps.observe(Date.now());
  assert.equal(await steps.step(manager), true);
});
