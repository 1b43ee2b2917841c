import assert from "node:assert/strict";
import { connectTo } from "../../support/connectTo.js";
import { test } from "../../support/limitedTest.js";
import { processesOfFile, type ProcessOptions, type TestProcess } from "../../support/process.js";
import { RestartableServer } from "../../support/restartableServer.js";
import { rowsOf, waitForRow } from "../../support/tasks.js";

const startProcess = await processesOfFile();
const server = await RestartableServer.started();
const options: ProcessOptions = {
  config: { url: server.url, "pg_task.sleep": 50, "pg_task.delete": false },
  sabotaged: true,
};
const gapMs = 1_500;
/**
 * The times that are compared are those at which the runs begin their transactions. The gap counts from a few messages
 * earlier.
 */
const toleranceMs = 50;

/** What happens to the process that serves the table, while another process stands by. */
const events: Readonly<Record<string, (program: TestProcess) => Promise<unknown>>> = {
  "the process was killed": (program) => program.end("SIGKILL"),
  "the process was stopped": (program) => program.end("SIGTERM"),
  "its manager thread died": (program) => program.sabotage({ thread: "manager", how: "throw" }),
  "its executor thread died": (program) => program.sabotage({ thread: "executor", how: "throw" }),
};

/** The process that serves the table, and its standby. A test uses those that the test before has left. */
const running: TestProcess[] = [];

for (const [what, happen] of Object.entries(events)) {
  test(`no two tasks start nearer than their gap after ${what}`, async () => {
    const program = running[0] ?? (await startProcess(options));
    await program.line("ready");
    const standby = running[1] ?? (await startProcess(options));
    await standby.line("standby");
    running.splice(0, 2, program, standby);
    const client = await connectTo(server.url);
    await client.query("DROP TABLE IF EXISTS started; CREATE TABLE started (at timestamptz)");
    // The first statement is committed at once, so that runs that are cut off are counted as well.
    await client.query(
      `INSERT INTO task (input, "group", max, gap)
       SELECT 'INSERT INTO started VALUES (now()); COMMIT; SELECT pg_sleep(0.3)', $1, 9, $2 FROM generate_series(1, 3)`,
      [what, `${gapMs} ms`],
    );
    await waitForRow(client, "SELECT FROM started HAVING count(*) = 1");
    await happen(program);
    await waitForRow(client, `SELECT FROM task WHERE "group" = $1 AND state = 'DONE' HAVING count(*) = 3`, [what]);
    const rows = await rowsOf<{ ms: number }>(
      client,
      "SELECT (extract(epoch FROM at - lag(at) OVER (ORDER BY at)) * 1000)::float8 AS ms FROM started ORDER BY at OFFSET 1",
    );
    assert.ok(rows.length >= 2);
    for (const { ms } of rows) assert.ok(ms >= gapMs - toleranceMs, `${ms} ms between two starts`);
    await client.end();
    if (program.child.exitCode !== null || program.child.signalCode !== null) running.shift();
  });
}
