import assert from "node:assert/strict";
import { test } from "node:test";
import { LostRemoteRuns } from "../../../../src/manager/recovery/lostRemoteRuns.js";
import type { RemoteRun } from "../../../../src/manager/recovery/remoteRuns.sql.js";
import type { RemoteRunState } from "../../../../src/shared/ipc/run.js";
import { createLog } from "../../../../src/shared/log.js";

const process = { host: "there", address: "127.0.0.1", port: 5432, pid: 1, owner: "1 start" };

function run(id: string): RemoteRun {
  return { id, owner: "2 start", remote: id, process, isRunning: true };
}

/** Creates lost remote runs with a clock and servers that the test controls. */
function createRuns(resetMs: number) {
  const queries: { remote: string; answer: (state: RemoteRunState | null) => void }[] = [];
  const lines: Record<string, unknown>[] = [];
  const clock = { now: 0 };
  const events = { gone: 0 };
  const components = {
    executors: {
      findRemoteProcess: ({ remote }: Pick<RemoteRun, "remote">) =>
        new Promise<RemoteRunState | null>((answer) => queries.push({ remote, answer })),
    },
    wakeSignal: { notify: () => void (events.gone += 1) },
    resetMs,
    log: createLog({ level: "info", name: "test", write: (line) => void lines.push(JSON.parse(line)) }),
  };
  const lostRuns = new LostRemoteRuns(components, () => clock.now);
  /** Answers the oldest open query. */
  const answer = async (state: RemoteRunState | null): Promise<void> => {
    queries.shift()?.answer(state);
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { lostRuns, queries, lines, clock, events, answer };
}

test("a run counts as active as long as its server says that its backend exists", async () => {
  const { lostRuns, queries, clock, answer, lines } = createRuns(1_000);
  for (let time = 0; time < 20; time += 1) {
    assert.deepEqual([...lostRuns.inspect([run("1")]).running], ["1"]);
    assert.equal(queries.length, 1);
    await answer("running");
    clock.now += lostRuns.pauseMs;
    assert.ok(lostRuns.pauseMs === 0 && clock.now > 0);
  }
  assert.ok(clock.now > 10_000);
  assert.deepEqual(
    lines.map(({ msg }) => msg),
    ["remote task may still run, asking its server"],
  );
});

test("reports a run that is gone, which then no longer counts", async () => {
  const { lostRuns, events, answer, queries } = createRuns(1_000);
  lostRuns.inspect([run("1"), run("2")]);
  assert.deepEqual(
    queries.map(({ remote }) => remote),
    ["1", "2"],
  );
  await answer("gone");
  assert.equal(events.gone, 1);
  assert.deepEqual([...lostRuns.inspect([run("1"), run("2")]).running], ["2"]);
});

test("the runs of a server that does not answer for pg_task.reset are given up and logged", async () => {
  const { lostRuns, clock, answer, lines } = createRuns(1_000);
  lostRuns.inspect([run("1")]);
  await answer(null);
  clock.now = 999;
  assert.deepEqual([...lostRuns.inspect([run("1")]).running], ["1"]);
  await answer("running");
  clock.now = 1_998;
  assert.deepEqual([...lostRuns.inspect([run("1")]).running], ["1"], "the server answered meanwhile");
  await answer(null);
  clock.now = 1_999;
  assert.deepEqual([...lostRuns.inspect([run("1")]).running], []);
  assert.equal(lines.at(-1)?.["msg"], "state of a remote task unknown, it may run twice");
});

test("at most eight queries are open at once, and one for each run", async () => {
  const { lostRuns, queries, clock, answer } = createRuns(Infinity);
  const runs = Array.from({ length: 20 }, (_, each) => run(String(each)));
  lostRuns.inspect(runs);
  clock.now = 100_000;
  lostRuns.inspect(runs);
  assert.equal(queries.length, 8);
  await answer("running");
  lostRuns.inspect(runs);
  assert.equal(queries.length, 8);
  assert.equal(queries.at(-1)?.remote, "8", "other runs come before one that was just queried");
});

test("a run that is no longer listed is forgotten, and the next run of its task is a new one", async () => {
  const { lostRuns, answer } = createRuns(1_000);
  lostRuns.inspect([run("1")]);
  await answer("gone");
  assert.deepEqual([...lostRuns.inspect([{ ...run("1"), owner: "3 start" }]).running], ["1"]);
});
