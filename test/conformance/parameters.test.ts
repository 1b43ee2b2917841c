import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { parameters, type ParameterName } from "../../src/shared/config/parameterTable.js";
import { test } from "../support/limitedTest.js";
import { serve } from "../support/serve.js";
import { eventually, maxConcurrent, only, type NewTask, type TaskRow } from "../support/tasks.js";

const { client, tasks } = await serve();

/** Runs tasks that are inserted with these settings of the session, from which their column defaults come. */
async function runWith(settings: string, count: number, task: NewTask): Promise<readonly TaskRow[]> {
  await client.query(`BEGIN; ${settings}`);
  const ids = await tasks.insert(...Array.from({ length: count }, () => task));
  await client.query("COMMIT");
  return await tasks.ended(...ids);
}

const outputOf = async (settings: string, input: string): Promise<string | null> =>
  only(await runWith(settings, 1, { input })).output;

async function successorDrifts(settings: string, task: NewTask): Promise<boolean> {
  const { id } = only(await runWith(settings, 1, task));
  return await tasks.successorHolds(id, "n.plan = t.stop + t.repeat");
}

const columns = "SELECT 1 AS a, 'x\"y' AS b, NULL AS c";

/** For each parameter, a check that the value set in the inserting session affects the task. */
const bySession = {
  "pg_task.delete": async () => {
    const [kept] = await runWith("SET LOCAL pg_task.delete = off", 1, { input: "SELECT 1 WHERE false" });
    assert.equal(kept?.state, "DONE");
    await client.query("BEGIN; SET LOCAL pg_task.delete = on");
    const id = await tasks.add("SELECT 1 WHERE false");
    await client.query("COMMIT");
    await tasks.removed(id);
  },
  "pg_task.drift": async () => {
    const task = { input: "SELECT 1", repeat: "10 years" };
    assert.equal(await successorDrifts("SET LOCAL pg_task.drift = on", task), true);
    assert.equal(await successorDrifts("SET LOCAL pg_task.drift = off", task), false);
  },
  "pg_task.delimiter": async () => {
    assert.match((await outputOf("SET LOCAL pg_task.delimiter = ';'", columns)) ?? "", /^a;b;c\n/);
  },
  "pg_task.quote": async () => {
    assert.match((await outputOf("SET LOCAL pg_task.quote = '*'", columns)) ?? "", /^\*a\*\t/);
  },
  "pg_task.escape": async () => {
    const settings = `SET LOCAL pg_task.quote = '"'; SET LOCAL pg_task.escape = '!'`;
    assert.match((await outputOf(settings, columns)) ?? "", /\n1\t"x!"y"/);
  },
  "pg_task.null": async () => {
    assert.match((await outputOf(`SET LOCAL pg_task."null" = 'nil'`, columns)) ?? "", /\tnil$/);
  },
  "pg_task.header": async () => {
    assert.equal(await outputOf("SET LOCAL pg_task.header = off", columns), '1\tx"y\t\\N');
    assert.equal(await outputOf("", columns), 'a\tb\tc\n1\tx"y\t\\N');
  },
  "pg_task.string": async () => {
    const settings = "SET LOCAL pg_task.quote = '*'; SET LOCAL pg_task.header = off;";
    const all = "SET LOCAL pg_task.string = off";
    assert.equal(await outputOf(settings + all, columns), '*1*\t*x"y*\t\\N');
    assert.equal(await outputOf(settings, columns), '1\t*x"y*\t\\N');
  },
  "pg_task.save": async () => {
    for (const save of [true, false]) {
      const settings = `SET LOCAL pg_task.save = ${save}; SET LOCAL pg_task.count = 2`;
      const input = "SELECT coalesce(nullif(current_setting('my.own', true), ''), 'none'); SET my.own = 'x'";
      const [, second] = await runWith(settings, 2, { input, group: `save ${save}` });
      assert.equal(second?.output, save ? "x\nSET" : "none\nSET");
    }
  },
  "pg_task.count": async () => {
    const task = { input: "SELECT 1", group: "count" };
    const rows = await runWith("SET LOCAL pg_task.count = 2", 4, task);
    assert.deepEqual([rows[1]?.pid, rows[3]?.pid], [rows[0]?.pid, rows[2]?.pid]);
    assert.notEqual(rows[2]?.pid, rows[0]?.pid);
  },
  "pg_task.live": async () => {
    const task = { input: "SELECT 1", group: "live" };
    const rows = await runWith("SET LOCAL pg_task.live = '1 hour'", 4, task);
    assert.equal(new Set(rows.map(({ pid }) => pid)).size, 1);
    // A session with `live` takes only tasks of its group, and ends once no task of that group is due.
    await eventually(client, `SELECT FROM pg_stat_activity WHERE pid = ${rows[0]?.pid}`, ({ length }) => length === 0);
    const [again] = await runWith("SET LOCAL pg_task.live = '1 hour'", 1, task);
    assert.notEqual(again?.pid, rows[0]?.pid);
  },
  "pg_task.max": async () => {
    // The advisory lock is released only when as many tasks wait for it as may run at the same time.
    const task = { input: "SELECT pg_advisory_lock_shared(1000)", group: "max" };
    for (const [max, atOnce] of [[2, 3] as const, [0, 1] as const]) {
      await client.query("SELECT pg_advisory_lock(1000)");
      const ended = runWith(`SET LOCAL pg_task.max = ${max}`, 6, task);
      await eventually(
        client,
        `SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 1000 AND NOT granted
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
        ({ length }) => length === atOnce,
      );
      await client.query("SELECT pg_advisory_unlock(1000)");
      assert.equal(maxConcurrent(await ended), atOnce);
    }
  },
  "pg_task.atomic": async () => {
    for (const [value, proofs] of [
      ["on", 1],
      ["off", 0],
    ]) {
      const input = "CREATE TABLE made (i int); DROP TABLE made";
      const { id } = only(await runWith(`SET LOCAL pg_task.atomic = ${value}`, 1, { input }));
      const { rowCount } = await client.query(
        "SELECT FROM task_ledger_1 WHERE id = $1 UNION ALL SELECT FROM task_ledger_2 WHERE id = $1",
        [id],
      );
      assert.equal(rowCount, proofs);
    }
  },
  "pg_task.active": async () => {
    const task = { input: "SELECT 1", plan: "2001-01-01" };
    const [late] = await runWith("SET LOCAL pg_task.active = '1 day'", 1, task);
    const [due] = await runWith("SET LOCAL pg_task.active = '900 years'", 1, task);
    assert.deepEqual([late?.state, due?.state], ["GONE", "DONE"]);
  },
  "pg_task.repeat": async () => {
    const task = { input: "SELECT 1", drift: true };
    assert.equal(await successorDrifts("SET LOCAL pg_task.repeat = '10 years'", task), true);
  },
  "pg_task.timeout": async () => {
    const [row] = await runWith("SET LOCAL pg_task.timeout = '50 ms'", 1, { input: "SELECT pg_sleep(60)" });
    assert.match(row?.error ?? "", /^ERROR: {2}canceling statement due to statement timeout\n/);
  },
  "pg_task.retry": async () => {
    const settings = "SET LOCAL pg_task.retry = 2; SET LOCAL pg_task.backoff = '1 ms'";
    const failed = only(await runWith(settings, 1, { input: "SELECT 1/0" }));
    assert.ok(await tasks.holds(failed.id, "attempt = 2"));
  },
  "pg_task.zone": async () => {
    const task = { input: "SELECT 1", rule: "* * * * * *" };
    const { id } = only(await runWith("SET LOCAL pg_task.zone = 'Asia/Kolkata'", 1, task));
    assert.ok(await tasks.holds(id, "zone = 'Asia/Kolkata'"));
  },
  "pg_task.group": async () => {
    const row = only(await runWith(`SET LOCAL pg_task."group" = 'mine'`, 1, { input: `SHOW pg_task."group"` }));
    assert.deepEqual([row.group, row.output], ["mine", "mine"]);
  },
} satisfies Partial<Record<ParameterName, () => Promise<void>>>;

for (const [name, check] of Object.entries(bySession)) {
  test(`§2 ${name} has its documented effect`, check);
}

test("§2 a task reads its own id from the setting pg_task.id", async () => {
  const row = await tasks.run("SELECT current_setting('pg_task.id')");
  assert.equal(row.output, row.id);
});

/** The test file that covers each of the other parameters. */
const coveredBy: Partial<Record<ParameterName, string>> = {
  "pg_task.plan": "integration/manager/schema/defaults",
  "pg_task.output": "integration/manager/tasks/limits",
  "pg_task.backoff": "conformance/retry",
  "pg_task.gap": "conformance/gap",
  "pg_task.ceiling": "conformance/retrySettings",
  "pg_task.slow": "integration/manager/sessions/overruns",
  "pg_task.sqlstate": "conformance/retrySettings",
  "pg_task.crash": "integration/manager/tasks/deaths",
  "pg_task.keep": "integration/manager/tasks/pause",
  "pg_task.run": "integration/supervisor/reloadParameters",
  "pg_task.fetch": "integration/manager/tasks/limits",
  "pg_task.limit": "integration/manager/tasks/limits",
  "pg_task.sleep": "integration/manager/loop/deepSleep",
  "pg_task.reset": "conformance/managers",
  "pg_task.idle": "conformance/processParameters",
  "pg_task.schema": "conformance/managers",
  "pg_task.table": "conformance/managers",
  "pg_task.create": "integration/supervisor/rolesAndDatabases",
  "pg_task.data": "conformance/managers",
  "pg_task.user": "conformance/managers",
  "pg_task.default": "integration/cli/readingCommands",
  "pg_task.json": "conformance/managers",
  "pg_conf.max": "integration/supervisor/reloadParameters",
  "pg_conf.reserve": "integration/manager/sessions/reserve",
  "pg_work.close": "integration/process/threadParameters",
  "pg_work.fetch": "conformance/managers",
  "pg_conf.restart": "integration/process/threadParameters",
  "pg_work.restart": "integration/process/threads",
  "pg_conf.grace": "conformance/processParameters",
  "pg_conf.frozen": "integration/process/frozenLeader",
  "pg_conf.close": "integration/process/threadParameters",
  "pg_conf.fetch": "integration/supervisor/entryLevels",
  "pg_conf.threads": "integration/supervisor/reloadParameters",
  "pg_conf.name": "integration/process/standby",
  "pg_task.home": "integration/process/copies",
  "pg_task.share": "integration/manager/sessions/shares",
  "pg_task.weights": "integration/manager/sessions/shares",
  "pg_conf.log": "integration/supervisor/reloadParameters",
  "pg_http.listen": "integration/web/server",
  "pg_http.token": "integration/web/server",
  "pg_http.readonly": "integration/web/access",
  "pg_http.hosts": "integration/web/access",
  "pg_http.base": "integration/web/mounted",
  "pg_http.user": "integration/web/mounted",
  "pg_http.proxies": "integration/web/mounted",
  "pg_http.webhooks": "conformance/webhooks",
};

for (const { name } of parameters) {
  test(`§2 a test covers the effect of ${name}`, () => {
    const file = coveredBy[name];
    const isHere = name in bySession;
    assert.equal(Number(isHere) + Number(file !== undefined), 1);
    if (file === undefined) return;
    const text = readFileSync(new URL(`../${file}.test.js`, import.meta.url), "utf8");
    assert.ok(text.replaceAll(/(\w)\."(\w+)"/g, "$1.$2").includes(name), `${file} has no ${name}`);
  });
}
