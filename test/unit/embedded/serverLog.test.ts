import assert from "node:assert/strict";
import { test } from "node:test";
import { ServerLog } from "../../../src/embedded/serverLog.js";
import { recordingLog } from "../../support/embedded.js";

const postmaster = 7;
const nothing = "it has logged nothing about its end";

/** Returns how a log explains the end after these lines. A number is a pause, in ms. */
function explained(...lines: readonly (string | number)[]): string {
  let now = 0;
  const serverLog = new ServerLog(recordingLog().log, () => now);
  for (const line of lines) {
    if (typeof line === "number") now += line;
    else serverLog.take(line);
  }
  return serverLog.explainEnd(postmaster);
}

const shutdown = "[7] LOG:  received immediate shutdown request";

test("the end of a running server is explained by what its main process has logged", () => {
  assert.equal(explained(shutdown), "its last log lines: LOG:  received immediate shutdown request");
  assert.equal(
    explained("[8] FATAL:  no space left", "[7] LOG:  startup process (PID 8) exited with exit code 1", "\tmore"),
    "its last log lines: FATAL:  no space left | LOG:  startup process (PID 8) exited with exit code 1 | more",
  );
  assert.equal(explained("[9] PANIC:  could not write"), "its last log lines: PANIC:  could not write");
});

test("lines of sessions, old lines and those of the start do not explain it", () => {
  assert.equal(explained(), nothing);
  assert.equal(explained("[9] ERROR:  division by zero", "[9] FATAL:  terminating connection"), nothing);
  assert.equal(explained("[7] LOG:  received SIGHUP", 60_000), nothing);
  assert.equal(explained(shutdown, "[7] LOG:  database system is ready to accept connections"), nothing);
});
