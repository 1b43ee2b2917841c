import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { once } from "node:events";
import { setImmediate as nextTurn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { timeoutSignal } from "../../../src/shared/timeoutSignal.js";
import { projectPath } from "../../support/project.js";
import { test } from "../../support/limitedTest.js";

setFlagsFromString("--expose-gc");
const collectGarbage: () => void = runInNewContext("gc");
const never = new AbortController().signal;

for (const [title, create] of [
  ["alone", () => timeoutSignal(100)],
  ["with another signal", () => timeoutSignal(100, never)],
] as const) {
  test(`a limit ${title} is kept when garbage is collected`, async () => {
    // Timers of signals do not keep the process alive.
    const keepAlive = setInterval(() => {}, 1_000);
    const aborted = once(create(), "abort");
    for (let times = 0; times < 3; times += 1) {
      await nextTurn();
      collectGarbage();
    }
    const [{ target }] = await aborted;
    assert.equal(target.reason.name, "TimeoutError");
    clearInterval(keepAlive);
  });
}

test("is aborted with the other signal, for its reason", async () => {
  const other = new AbortController();
  const signal = timeoutSignal(60_000, other.signal);
  other.abort("why");
  assert.equal(signal.reason, "why");
  assert.equal(timeoutSignal(60_000, other.signal).reason, "why");
});

test("nothing else in the program uses AbortSignal.timeout", () => {
  const files = readdirSync(projectPath("src"), { recursive: true, encoding: "utf8" }).filter(
    (name) => name.endsWith(".ts") && !name.startsWith("web/page/"),
  );
  const using = files.filter((name) => /AbortSignal\.timeout\(/.test(readFileSync(projectPath(`src/${name}`), "utf8")));
  assert.ok(files.includes("shared/timeoutSignal.ts"));
  assert.deepEqual(using, []);
});
