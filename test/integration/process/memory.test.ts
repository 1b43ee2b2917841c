import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import type { TestContext } from "node:test";
import { connectTo } from "../../support/connectTo.js";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { startProcess, type TestProcess } from "../../support/process.js";
import { insertTask, waitForRow, waitForState } from "../../support/tasks.js";
import { startPgTask } from "../../support/pgTask.js";

const mebi = 1 << 20;
const tasks = 12;
const outputMebi = 40;
const onLinux = process.platform === "linux";
const database = await createDatabase();
const client = await database.connect();

/** Asserts that the process's peak resident memory so far is below this limit. Checks this only on Linux. */
async function expectPeak(t: TestContext, { pid }: TestProcess, maxMebi: number): Promise<void> {
  if (!onLinux) return;
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  const [, kb = ""] = /^VmHWM:\s+(\d+) kB$/m.exec(status) ?? [];
  const peak = Math.round(Number(kb) / 1024);
  t.diagnostic(`peak: ${peak} MB`);
  assert.ok(peak > 0 && peak < maxMebi, `${peak} MB`);
}

test("large outputs of many concurrent tasks take bounded memory", async (t) => {
  const program = await startProcess({
    config: {
      url: database.url,
      "pg_conf.threads": 2,
      "pg_conf.max": tasks,
      "pg_conf.reserve": 0,
      // The limit is so large that no run is repeated because of its output.
      "pg_task.output": "128MB",
    },
    until: "ready",
  });
  const gate = await connectTo(database.url);
  await gate.query("SELECT pg_advisory_lock(1)");
  await client.query(
    `INSERT INTO task (input, max)
     SELECT 'SELECT repeat(''x'', ${mebi - 1}) FROM (SELECT pg_advisory_xact_lock_shared(1)) AS gate, generate_series(1, ${outputMebi})', ${tasks}
     FROM generate_series(1, ${tasks})`,
  );
  // No task produces output before all tasks run.
  await waitForRow(
    client,
    `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'
     HAVING count(*) = ${tasks}`,
  );
  await gate.query("SELECT pg_advisory_unlock(1)");
  await waitForRow(
    client,
    `SELECT FROM task WHERE state = 'DONE' AND octet_length(output) = ${outputMebi * mebi - 1}
     HAVING count(*) = ${tasks}`,
  );
  // All outputs together take 480 MB. Each thread may keep 32 MB of them in memory, and transfers one output at a time.
  await expectPeak(t, program, 500);
  await program.stop();
  await gate.end();
});

test("a gigabyte of output and an output of ten million rows harm neither the process nor other tasks", async (t) => {
  const program = await startProcess({
    config: { url: database.url, "pg_conf.threads": 1, "pg_task.output": "128MB" },
    until: "ready",
  });
  const rows = 10_000_000;
  const gigabyte = `SELECT repeat('x', ${mebi}) FROM generate_series(1, 1024)`;
  const many = await insertTask(client, `SELECT i FROM generate_series(1, ${rows}) AS i`, { group: "many" });
  const large = await insertTask(client, gigabyte, { group: "large" });
  const other = await insertTask(client, "SELECT 'other'", { group: "other" });
  assert.equal((await waitForState(client, other, "DONE")).output, "other");
  const failed = await waitForRow<{ error: string; length: number }>(
    client,
    "SELECT error, octet_length(output) AS length FROM task WHERE id = $1 AND state = 'FAIL'",
    [large],
  );
  assert.match(failed.error, /^ERROR: {2}output exceeds 134217728 bytes \(pg_task\.output\)\n/);
  assert.ok(failed.length <= 128 * mebi);
  const whole = await waitForRow<{ lines: number; last: string }>(
    client,
    `SELECT length(output) - length(replace(output, E'\\n', '')) + 1 AS lines, right(output, 8) AS last
     FROM task WHERE id = $1 AND state = 'DONE'`,
    [many],
  );
  assert.deepEqual(whole, { lines: rows, last: String(rows) });
  await expectPeak(t, program, 800);
  await program.stop();
});

test("a limit of more than 256 MB has the effect of a limit of 256 MB", async () => {
  await client.query("DELETE FROM task");
  await startPgTask({ url: database.url, "pg_task.output": "2000MB" });
  const id = await insertTask(client, "SELECT repeat('x', 1000000) FROM generate_series(1, 300)", { group: "large" });
  const row = await waitForRow(
    client,
    `SELECT split_part(error, E'\\n', 1) AS error, length(output) AS length FROM task
     WHERE id = $1 AND state = 'FAIL'`,
    [id],
  );
  assert.deepEqual(row, { error: "ERROR:  output exceeds 268435456 bytes", length: 268 * 1_000_001 - 1 });
});
