import assert from "node:assert/strict";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { until, maxConcurrent, newName, statesOf } from "../support/tasks.js";

const { client, tasks } = await serve({ "pg_task.delete": false });

/** An input that fails the given number of times. */
async function failing(times: number): Promise<string> {
  const name = newName();
  await client.query(`CREATE SEQUENCE ${name}`);
  return `SELECT 1 / (CASE WHEN nextval('${name}') > ${times} THEN 1 ELSE 0 END)`;
}

interface Run {
  readonly id: string;
  readonly parent: string | null;
  readonly state: string;
  readonly attempt: number;
  /** Hours from the first planned time to the planned time of the run. */
  readonly hours: number;
  readonly error: string | null;
}

/** SQL of the runs of a group in the order of their times. A task that was retried has its first planned time in `due`. */
const runs = (group: string): string =>
  `SELECT id, parent, state::text AS state, coalesce(attempt, 0) AS attempt, error,
     (extract(epoch FROM coalesce(due, plan) - min(coalesce(due, plan)) OVER ()) / 3600)::integer AS hours
   FROM task WHERE "group" = '${group}' ORDER BY coalesce(due, plan), id`;

const hasNext = (rows: readonly Run[]): boolean =>
  rows.length > 1 && rows.at(-1)?.state === "PLAN" && rows.at(-1)?.attempt === 0;

const threeHoursAgo = await tasks.value<string>("SELECT (date_trunc('hour', now()) - interval '3 hours')::text");

for (const schedule of [{ rule: "0 * * * *", zone: "UTC" }, { repeat: "1 hour" }]) {
  const kind = Object.keys(schedule)[0] ?? "";
  const missed = { ...schedule, plan: threeHoursAgo, active: "1 day" };

  test(`retry, ${kind} and catchup: all tries of one time come first, then the times missed meanwhile, each once`, async () => {
    const group = newName();
    await tasks.add(await failing(2), { group, retry: 5, backoff: "1 ms", catchup: true, ...missed });
    const rows = await until<Run>(client, runs(group), (found) => hasNext(found) && (found.at(-1)?.hours ?? 0) >= 4);
    assert.deepEqual(
      rows.map((run) => run.hours),
      rows.map((_, index) => index),
    );
    assert.deepEqual(
      rows.map(({ attempt }) => attempt),
      rows.map((_, index) => (index === 0 ? 2 : 0)),
    );
    const done = await tasks.ended(...rows.slice(0, -1).map(({ id }) => id));
    assert.deepEqual([done.every(({ state }) => state === "DONE"), maxConcurrent(done)], [true, 1]);
  });

  test(`retry and ${kind} without catchup: after the tries of a late time, the schedule goes on at the next time`, async () => {
    const group = newName();
    await tasks.add(await failing(9), { group, retry: 2, backoff: "1 ms", ...missed });
    const rows = await until<Run>(client, runs(group), hasNext);
    assert.deepEqual([rows.length, rows[0]?.state, rows[0]?.attempt], [2, "FAIL", 2]);
    assert.ok((rows[1]?.hours ?? 0) >= 4);
  });

  test(`retry and ${kind}: a try that comes too late is GONE, and the schedule goes on`, async () => {
    const group = newName();
    const id = await tasks.add(await failing(9), { group, retry: 2, backoff: "20 min", ...missed });
    await until<Run>(client, runs(group), ([first]) => first?.attempt === 1);
    await tasks.set(id, "plan = now() - interval '2 days'");
    const rows = await until<Run>(client, runs(group), hasNext);
    assert.deepEqual([rows.length, rows[0]?.state, rows[0]?.attempt], [2, "GONE", 1]);
    assert.ok((rows[1]?.hours ?? 0) >= 4, "counted from the time of the schedule, and not from the try");
  });
}

test("overlap and retry: the next run is planned once, by the first try, and does not wait for the other tries", async () => {
  const group = newName();
  const more = { group, retry: 3, backoff: "20 min", repeat: "1 hour", overlap: true };
  const first = await tasks.add(await failing(1), more);
  const waits = await until<Run>(client, runs(group), (found) => found[0]?.attempt === 1);
  assert.deepEqual(
    waits.map(({ parent, hours: at }) => [parent, at]),
    [
      [null, 0],
      [first, 1],
    ],
  );
  // The next run comes while the first one waits for its next try.
  await client.query(`UPDATE task SET plan = now() WHERE parent = ${first}`);
  await until(client, `SELECT FROM task WHERE parent = ${first} AND state = 'DONE'`);
  await tasks.set(first, "plan = now()");
  assert.equal((await tasks.end(first)).state, "DONE");
  const repeating = `SELECT array_agg(repeat > '0' ORDER BY repeat) FROM task WHERE "group" = $1`;
  assert.deepEqual(await tasks.value(repeating, [group]), [false, false, true]);
});

test("overlap, key and retry: the next run has the key, so a run that fails is not tried again", async () => {
  const group = newName();
  const first = await tasks.add("SELECT 1/0", { group, key: group, retry: 3, repeat: "1 day", overlap: true });
  const failed = await tasks.end(first);
  const next = await tasks.value<string>(`SELECT id FROM task WHERE parent = ${first}`);
  assert.equal(failed.state, "FAIL");
  assert.ok(failed.error?.endsWith(`\nDETAIL:  Task ${next} with the same key takes its place.`));
});

test("overlap, key and rule: exactly one runs and one waits, although runs take longer than the rule's interval", async () => {
  const group = newName();
  const more = { group, key: group, max: 5, rule: "* * * * * *", zone: "UTC", overlap: true, active: "1 hour" };
  await tasks.add("SELECT pg_sleep(1.2)", more);
  const counts = `SELECT count(*) FILTER (WHERE state IN ('TAKE', 'WORK'))::integer AS run, count(*) FILTER (WHERE ready IS NOT NULL)::integer AS wait,
    count(*) FILTER (WHERE state = 'DONE')::integer AS done FROM task WHERE "group" = '${group}'`;
  for (const count of [1, 2, 3]) {
    // The next run waits for the end of the one that has begun, although its time has come.
    await until<{ run: number; wait: number; done: number }>(
      client,
      counts,
      ([found]) => found?.run === 1 && found.wait === 1 && found.done >= count,
    );
  }
  await client.query(`UPDATE task SET state = 'STOP' WHERE "group" = '${group}' AND ready IS NOT NULL`);
  assert.equal(maxConcurrent(await tasks.endedOf(`SELECT id FROM task WHERE "group" = '${group}'`)), 1);
});

for (const schedule of [{ repeat: "1 day" }, { repeat: "1 day", drift: true }, { rule: "0 0 1 1 *", zone: "UTC" }]) {
  test(`after and ${Object.keys(schedule).join()}: a task waits for the run with this id, and not for the next ones`, async () => {
    const { wait, open } = await tasks.gate();
    const first = await tasks.add(wait, { plan: "2001-01-01Z", active: "100 years", ...schedule });
    const second = await tasks.add("SELECT 2", { after: `{${first}}` });
    await tasks.running(first);
    await open();
    assert.equal((await tasks.end(second)).state, "DONE");
    assert.ok(await tasks.successorHolds(first, "n.state = 'PLAN' AND n.after IS NULL AND n.plan > now()"));
  });
}

test("after and overlap: a schedule that waits for others plans its next run when it starts, and not before", async () => {
  const { wait, open } = await tasks.gate();
  const first = await tasks.add(wait);
  const second = await tasks.add("SELECT 2", { after: `{${first}}`, repeat: "1 day", overlap: true });
  await until(client, `SELECT FROM task WHERE id = ${second} AND wait = 0`);
  assert.deepEqual(await tasks.rows(`SELECT FROM task WHERE parent = ${second}`), []);
  await open();
  await tasks.end(second);
  assert.ok(await tasks.successorHolds(second, "n.after IS NULL"));
});

test("after, rule and catchup: times that pass while the first run waits are made up for afterwards", async () => {
  const group = newName();
  const { id: first, open } = await tasks.blocker();
  const schedule = { rule: "0 * * * *", zone: "UTC", catchup: true, plan: threeHoursAgo, active: "1 day" };
  await tasks.add("SELECT 2", { group, after: `{${first}}`, ...schedule });
  await open();
  const rows = await until<Run>(client, runs(group), (found) => hasNext(found) && (found.at(-1)?.hours ?? 0) >= 4);
  assert.deepEqual(
    rows.map((run) => run.hours),
    rows.map((_, index) => index),
  );
});

for (const [what, group] of [
  ["group", "rule and pause"],
  ["table", null],
] as const) {
  test(`rule and a paused ${what}: a time that has become too late waits until the pause ends, is GONE then, and the schedule goes on`, async () => {
    await client.query(`INSERT INTO task_pause ("group") VALUES ($1)`, [group]);
    const late = { rule: "0 0 1 1 *", zone: "UTC", plan: "2001-01-01Z", active: "1 s" };
    const id = await tasks.add("SELECT 1", { group: "rule and pause", ...late });
    if (group !== null) await tasks.run("SELECT 1", { group: newName() });
    assert.equal((await tasks.row(id)).state, "PLAN");
    await client.query("DELETE FROM task_pause");
    assert.equal((await tasks.end(id)).state, "GONE");
    assert.ok(await tasks.successorHolds(id, "n.plan = task_next(n.rule, n.zone, now())"));
    await client.query(`DELETE FROM task WHERE parent = ${id}`);
  });
}

test("STOP by the user: no further try and no next run, and tasks that wait for it see that it is not done", async () => {
  const group = newName();
  const more = { group, retry: 3, sqlstate: "{}", repeat: "1 day", backoff: "1 ms" };
  const id = await tasks.add("SELECT pg_sleep(60)", more);
  const then = await tasks.add("SELECT 2", { after: `{${id}}` });
  const anyway = await tasks.add("SELECT 3", { after: `{${id}}`, upon: "end" });
  const instead = await tasks.add("SELECT 4", { after: `{${id}}`, upon: "fail" });
  await tasks.sleeping(id);
  await tasks.set(id, "state = 'STOP'");
  const rows = await tasks.ended(then, anyway, instead);
  assert.deepEqual(statesOf(rows), ["GONE", "DONE", "DONE"]);
  assert.equal(rows[0]?.error, `ERROR:  task ${id}, which it waits for, is STOP`);
  assert.deepEqual(
    (await client.query<Run>(runs(group))).rows.map(({ state, attempt }) => [state, attempt]),
    [["STOP", 0]],
  );
});
