import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { connectTo } from "../support/connectTo.js";
import { createDatabase } from "../support/database.js";
import { test } from "../support/limitedTest.js";
import { startProcess } from "../support/process.js";
import { waitForRow } from "../support/waitFor.js";

const mebi = 1 << 20;
const tasks = 12;
const outputMebi = 40;
/** All outputs together are 480 MB; a thread may keep 32 MB of them, and one is on its way at a time. */
const mostMebi = 500;
const database = await createDatabase();
const client = await database.connect();

/** The most memory that the process had resident so far, in MB. */
async function peakMebi(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  const [, kb = ""] = /^VmHWM:\s+(\d+) kB$/m.exec(status) ?? [];
  return Number(kb) / 1024;
}

test("large outputs of many tasks at once do not fill the memory of the process", async (t) => {
  if (process.platform !== "linux") {
    t.skip("only Linux says how much memory a process had");
    return;
  }
  const program = await startProcess({
    config: {
      url: database.url,
      "pg_conf.threads": 2,
      "pg_conf.max": tasks,
      // Far enough above for no run to be made again.
      "pg_task.output": "128MB",
    },
  });
  await program.line("ready");
  const gate = await connectTo(database.url);
  await gate.query("SELECT pg_advisory_lock(1)");
  await client.query(
    `INSERT INTO task (input, max)
     SELECT 'SELECT repeat(''x'', ${mebi - 1}) FROM (SELECT pg_advisory_xact_lock_shared(1)) AS gate, generate_series(1, ${outputMebi})', ${tasks}
     FROM generate_series(1, ${tasks})`,
  );
  // Nobody puts anything out before all run.
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
  const peak = await peakMebi(program.pid);
  t.diagnostic(`peak: ${Math.round(peak)} MB`);
  assert.ok(peak < mostMebi, `${Math.round(peak)} MB`);
  assert.equal((await program.end()).code, 0);
  await gate.end();
});
