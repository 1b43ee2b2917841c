import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { text as readAll } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { describe, it } from "node:test";
import { findPromtool } from "../../support/promtool.js";
import { startWeb } from "../../support/startWeb.js";
import { temporaryFolder } from "../../support/temporaryFolder.js";
import { insertTask, waitForState } from "../../support/tasks.js";

const rules = fileURLToPath(new URL("../../../../examples/alerts.yml", import.meta.url));
const documentation = fileURLToPath(new URL("../../../../docs/web.md", import.meta.url));
const promtool = await findPromtool();
const { client, web } = await startWeb();

async function runPromtool(args: string[], input = ""): Promise<{ readonly code: number; readonly output: string }> {
  const child = spawn(promtool, args, { stdio: "pipe" });
  const output = Promise.all([readAll(child.stdout), readAll(child.stderr)]);
  child.stdin.end(input);
  const [code] = await once(child, "close");
  return { code, output: (await output).join("") };
}

it("exports metrics that promtool has nothing to say about", async () => {
  await waitForState(client, await insertTask(client, "SELECT 1"), "DONE");
  await client.query("INSERT INTO task (input, retry, backoff) VALUES ('SELECT 1/0', 1, '1 ms')");
  const text = await web.metricsUntil(
    (each) => each.includes("pg_task_retries_total{") && each.includes("\npg_task_event_loop_delay_max_seconds "),
  );
  assert.deepEqual(await runPromtool(["check", "metrics"], text), { code: 0, output: "" });
  // A metric that breaks a rule shows that promtool does check.
  const broken = text.replaceAll("pg_task_started_total", "pg_task_started");
  assert.match((await runPromtool(["check", "metrics"], broken)).output, /pg_task_started counter metrics should/);

  assert.match(text, /^pg_task_build_info\{version="\d[^"]*",node="\d[^"]*"\} 1$/m);
  const started = Number(/^process_start_time_seconds (\S+)$/m.exec(text)?.[1]);
  assert.ok(started > 1.7e9 && started <= Date.now() / 1000, String(started));
});

const table = '{job="pg-task",instance="a",server="s",database="d",schema="public",table="task"}';
const server = '{job="pg-task",instance="a",server="s"}';
const process = '{job="pg-task",instance="a"}';
const build = 'pg_task_build_info{job="pg-task",instance="a",version="1",node="22"}';

/** Series of a process that does its work, with a value for every minute of two hours. */
const healthy: Readonly<Record<string, string>> = {
  [`up${process}`]: "1x120",
  [`pg_task_leader${process}`]: "1x120",
  [`pg_task_ready${process}`]: "1x120",
  [`pg_task_manager_up${table}`]: "1x120",
  [`pg_task_scrape_error${table}`]: "0x120",
  [`pg_task_oldest_due_seconds${table}`]: "5x120",
  [`pg_task_owed${table}`]: "0x120",
  [`pg_task_notification_queue_usage${server}`]: "0.01x120",
  [`pg_task_failed_total${table}`]: "0+1x120",
  [`pg_task_finished_total${table}`]: "0+100x120",
  [`pg_task_gone_total${table}`]: "0x120",
  [`pg_task_queue_wait_seconds_bucket${table.replace("}", ',le="60"}')}`]: "0+101x120",
  [`pg_task_queue_wait_seconds_bucket${table.replace("}", ',le="300"}')}`]: "0+101x120",
  [`pg_task_queue_wait_seconds_bucket${table.replace("}", ',le="+Inf"}')}`]: "0+101x120",
  [`pg_task_sessions${table}`]: "4x120",
  [`pg_task_sessions_max${process}`]: "64x120",
  [`pg_task_backlog${table}`]: "3x120",
  [`pg_task_reconnects_total${table}`]: "0x120",
  [`pg_task_rescues_total${table}`]: "0x120",
  [`process_start_time_seconds${process}`]: "1000x120",
  [`pg_task_event_loop_delay_p99_seconds${process}`]: "0.01x120",
  [build]: "1x120",
};

/** For each alert, the series that make it fire. */
const causes: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  PgTaskDown: { [`up${process}`]: "0x120" },
  PgTaskNoLeader: { [`pg_task_leader${process}`]: "0x120" },
  PgTaskNotReady: { [`pg_task_ready${process}`]: "0x120" },
  PgTaskTableNotServed: { [`pg_task_manager_up${table}`]: "0x120" },
  PgTaskTableUnreadable: { [`pg_task_scrape_error${table}`]: "1x120" },
  PgTaskLate: { [`pg_task_oldest_due_seconds${table}`]: "0+60x120" },
  PgTaskSlowStart: { [`pg_task_queue_wait_seconds_bucket${table.replace("}", ',le="60"}')}`]: "0+90x120" },
  PgTaskFailures: { [`pg_task_failed_total${table}`]: "0+20x120" },
  PgTaskMostRunsFail: {
    [`pg_task_failed_total${table}`]: "0x100 1x20",
    [`pg_task_finished_total${table}`]: "5x120",
  },
  PgTaskGone: { [`pg_task_gone_total${table}`]: "0x100 1x20" },
  PgTaskOwed: { [`pg_task_owed${table}`]: "0 1x119" },
  PgTaskNotificationQueue: { [`pg_task_notification_queue_usage${server}`]: "0.6x120" },
  PgTaskSessionsExhausted: { [`pg_task_sessions${table}`]: "64x120" },
  PgTaskReconnects: { [`pg_task_reconnects_total${table}`]: "0+1x120" },
  PgTaskRescues: { [`pg_task_rescues_total${table}`]: "0+1x120" },
  PgTaskRestarts: { [`process_start_time_seconds${process}`]: "1000+60x120" },
  PgTaskBusyMainThread: { [`pg_task_event_loop_delay_p99_seconds${process}`]: "2x120" },
  PgTaskMixedVersions: { [build.replace('"a"', '"b"').replace('"1"', '"2"')]: "1x120" },
};

/** Returns the names of the alerts that fire after two hours, according to promtool. */
async function firing(series: Readonly<Record<string, string>>): Promise<string[]> {
  const file = join(await temporaryFolder(), "test.yml");
  const names = Object.keys(causes);
  const content = {
    rule_files: [rules],
    tests: [
      {
        interval: "1m",
        input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
        // Expecting nothing makes promtool list what fires.
        alert_rule_test: names.map((alertname) => ({ eval_time: "2h", alertname, exp_alerts: [] })),
      },
    ],
  };
  // Every JSON document is a YAML document.
  await writeFile(file, JSON.stringify(content));
  const { output } = await runPromtool(["test", "rules", file]);
  assert.match(output, /SUCCESS|FAILED/);
  return names.filter((name) => output.includes(`alertname="${name}"`));
}

describe("the alert rules", () => {
  it("are valid, and docs/web.md lists each of them", async () => {
    const { code, output } = await runPromtool(["check", "rules", rules]);
    assert.equal(code, 0, output);
    const names = [...readFileSync(rules, "utf8").matchAll(/- alert: (\w+)/g)].map(([, name]) => name);
    const listed = [...readFileSync(documentation, "utf8").matchAll(/^\| `(PgTask\w+)`/gm)].map(([, name]) => name);
    assert.deepEqual(listed, names);
    assert.deepEqual(Object.keys(causes), names);
  });

  it("do not fire while all is well", async () => {
    assert.deepEqual(await firing(healthy), []);
  });

  const retries = `pg_task_retries_total${table.replace("}", ',class="40"}')}`;
  const tries: Readonly<Record<string, Readonly<Record<string, string>>>> = {
    "succeeds after three tries between two scrapes": {
      [`pg_task_failed_total${table}`]: "0x100 3x20",
      [retries]: "_x100 3x20",
      [`pg_task_finished_total${table}`]: "0x101 1x19",
    },
    "succeeds after three tries in a table that has retried before": {
      [`pg_task_failed_total${table}`]: "4x100 5 6 7x18",
      [retries]: "4x100 5 6 7x18",
      [`pg_task_finished_total${table}`]: "2x103 3x17",
    },
    "is tried for the hundredth time": {
      [`pg_task_failed_total${table}`]: "0x70 1+1x48",
      [retries]: "_x71 1+1x48",
      [`pg_task_finished_total${table}`]: "0x120",
    },
  };
  for (const [what, cause] of Object.entries(tries)) {
    it(`do not fire as PgTaskMostRunsFail while a task ${what}`, async () => {
      assert.ok(!(await firing({ ...healthy, ...cause })).includes("PgTaskMostRunsFail"));
    });
  }

  it("fire as PgTaskMostRunsFail when the last of several tries has failed", async () => {
    const cause = { [`pg_task_failed_total${table}`]: "0x100 3x20", [retries]: "_x100 2x20" };
    const finished = { [`pg_task_finished_total${table}`]: "5x120" };
    assert.deepEqual(await firing({ ...healthy, ...cause, ...finished }), ["PgTaskMostRunsFail"]);
  });

  for (const [name, cause] of Object.entries(causes)) {
    it(`fire as ${name} for its cause, and no others do`, async () => {
      assert.deepEqual(await firing({ ...healthy, ...cause }), [name]);
    });
  }
});
