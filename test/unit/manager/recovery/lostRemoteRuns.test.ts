import assert from "node:assert/strict";
import { test } from "node:test";
import { LostRemoteRuns } from "../../../../src/manager/recovery/lostRemoteRuns.js";
import type { RemoteRun } from "../../../../src/manager/recovery/remoteRuns.sql.js";
import { createLog } from "../../../../src/shared/log.js";

const place = { host: "there", address: "127.0.0.1", port: 5432, pid: 1, owner: "1 start" };

function run(id: string): RemoteRun {
  return { id, owner: "2 start", remote: "host=there", place };
}

/** One whose clock and servers the test moves. */
function some(resetMs: number) {
  const questions: { id: string; answer: (gone: boolean | null) => void }[] = [];
  const lines: Record<string, unknown>[] = [];
  const clock = { now: 0 };
  const told = { changed: 0 };
  const abroad = new LostRemoteRuns({
    seek: (asked) => new Promise((answer) => questions.push({ id: asked.id, answer })),
    changed: () => (told.changed += 1),
    resetMs: () => resetMs,
    log: createLog({
      level: "info",
      name: "test",
      write: (line) => void lines.push(JSON.parse(line)),
    }),
    now: () => clock.now,
  });
  /** Answers the question that is open. */
  const answer = async (gone: boolean | null): Promise<void> => {
    questions.shift()?.answer(gone);
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { abroad, questions, lines, clock, told, answer };
}

test("a run stays as long as its server says that it is there, however long that is", async () => {
  const { abroad, questions, clock, answer, lines } = some(1_000);
  for (let time = 0; time < 20; time += 1) {
    assert.deepEqual([...abroad.settle([run("1")])], ["1"]);
    assert.equal(questions.length, 1);
    await answer(false);
    clock.now += abroad.pauseMs;
    assert.ok(abroad.pauseMs === 0 && clock.now > 0);
  }
  assert.ok(clock.now > 10_000);
  assert.deepEqual(
    lines.map(({ msg }) => msg),
    ["remote task may still run, its server is asked"],
  );
});

test("it is told when a run is gone, which then need not stay", async () => {
  const { abroad, told, answer, questions } = some(1_000);
  abroad.settle([run("1"), run("2")]);
  assert.deepEqual(
    questions.map(({ id }) => id),
    ["1", "2"],
  );
  await answer(true);
  assert.equal(told.changed, 1);
  assert.deepEqual([...abroad.settle([run("1"), run("2")])], ["2"]);
});

test("a server that is not heard of for reset has its runs given up, with a line of the log", async () => {
  const { abroad, clock, answer, lines } = some(1_000);
  abroad.settle([run("1")]);
  await answer(null);
  clock.now = 999;
  assert.deepEqual([...abroad.settle([run("1")])], ["1"]);
  await answer(false);
  clock.now = 1_998;
  assert.deepEqual([...abroad.settle([run("1")])], ["1"], "it was heard of meanwhile");
  await answer(null);
  clock.now = 1_999;
  assert.deepEqual([...abroad.settle([run("1")])], []);
  assert.equal(
    lines.at(-1)?.["msg"],
    "server of a remote task could not be asked whether it still runs, it may run twice",
  );
});

test("no more than eight are asked at once, and no run twice at a time", async () => {
  const { abroad, questions, clock, answer } = some(Infinity);
  const runs = Array.from({ length: 20 }, (_, each) => run(String(each)));
  abroad.settle(runs);
  clock.now = 100_000;
  abroad.settle(runs);
  assert.equal(questions.length, 8);
  await answer(false);
  abroad.settle(runs);
  assert.equal(questions.length, 8);
  assert.equal(questions.at(-1)?.id, "8", "others come before one that was just asked about");
});

test("a run of which nobody asks any more is forgotten, and another one of its task is a new one", async () => {
  const { abroad, answer } = some(1_000);
  abroad.settle([run("1")]);
  await answer(true);
  assert.deepEqual([...abroad.settle([{ ...run("1"), owner: "3 start" }])], ["1"]);
});
