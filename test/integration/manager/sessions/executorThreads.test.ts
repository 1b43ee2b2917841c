import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { readFile } from "node:fs/promises";
import { it, type TestContext } from "node:test";
import { preload, recordWorkers, sabotage, workers } from "../../../support/workers.js";
import { createLog } from "../../../../src/shared/log.js";
import type { PgTaskError } from "../../../../src/shared/errors.js";
import type { Run } from "../../../../src/shared/ipc/run.js";
import {
  ExecutorThreads,
  type ExecutorThread,
  type SessionMessage,
} from "../../../../src/manager/sessions/executorThreads.js";
import { ExecutorPools } from "../../../../src/manager/sessions/executorPools.js";
import { createDatabase } from "../../../support/database.js";
import { defaultRun, executorParameters } from "../../../support/executors.js";
import { waitForRow } from "../../../support/tasks.js";

recordWorkers();

const database = await createDatabase();
const client = await database.connect();
const silent = createLog({ level: "silent", name: "test", write: () => {} });

type Heard<Type extends SessionMessage["type"]> = Extract<SessionMessage, { type: Type }>;

function isOf<Type extends SessionMessage["type"]>(message: SessionMessage, type: Type): message is Heard<Type> {
  return message.type === type;
}

/** Creates executor threads, and records their messages. */
function startPool(test: TestContext, pools = new ExecutorPools()) {
  const news = new EventEmitter();
  const limit = { closeMs: 60_000 };
  const messages: { thread: ExecutorThread; message: SessionMessage }[] = [];
  const ended = new Map<ExecutorThread, PgTaskError | null>();
  const executors = new ExecutorThreads({
    parameters: () => executorParameters(database.target),
    closeMs: () => limit.closeMs,
    events: {
      message: (thread, message) => {
        messages.push({ thread, message });
        news.emit("news");
      },
      connectionRequest: () => {},
      ended: (thread, reason) => {
        ended.set(thread, reason);
        news.emit("news");
      },
    },
    log: silent,
    pools,
    threadLog: silent,
  });
  test.after(async () => {
    await executors.end();
    await pools.end();
  });
  /** Waits for the thread's next message of this type. */
  const heard = async <Type extends SessionMessage["type"]>(
    type: Type,
    thread: ExecutorThread,
  ): Promise<Heard<Type>> => {
    for (;;) {
      for (const [index, each] of messages.entries()) {
        if (each.thread !== thread || !isOf(each.message, type)) continue;
        messages.splice(index, 1);
        return each.message;
      }
      await once(news, "news");
    }
  };
  return {
    executors,
    heard,
    limit,
    /** Waits until the thread has ended. Returns the reason. */
    async end(thread: ExecutorThread): Promise<PgTaskError | null> {
      while (!ended.has(thread)) await once(news, "news");
      return ended.get(thread) ?? null;
    },
    /** Starts a thread, and opens a session with this number in it. Returns the pid of the session's backend. */
    async open(session: number): Promise<{ thread: ExecutorThread; pid: number }> {
      const thread = executors.start();
      executors.send(thread, { type: "open", sessions: [session], group: "group" });
      const { backend } = await heard("opened", thread);
      return { thread, pid: backend.pid };
    },
  };
}

const run = (session: number): Run => ({ ...defaultRun, session });

const gone = (pid: number) =>
  waitForRow(client, "SELECT WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", [pid]);

it("an idle thread reports a lost connection", async (test) => {
  const pool = startPool(test);
  const { thread, pid } = await pool.open(1);
  await client.query("SELECT pg_terminate_backend($1)", [pid]);
  assert.equal((await pool.heard("lost", thread)).session, 1);
});

for (const [how, source] of [
  ["throws", "throw new Error('no good')"],
  ["exits", "process.exit(3)"],
] as const) {
  it(`reports a thread that ${how} before it is ready, and starts the next one`, async (test) => {
    const pool = startPool(test);
    preload.source = source;
    const thread = pool.executors.start();
    test.after(() => (preload.source = ""));
    assert.equal((await pool.end(thread))?.code, "THREAD_DIED");
    preload.source = "";
    await pool.open(1);
    assert.equal(pool.executors.threads.size, 1);
  });
}

it("reports a killed thread, while another one keeps working", async (test) => {
  const pool = startPool(test);
  const first = await pool.open(1);
  const second = await pool.open(2);
  const worker = [...workers].find((each) => each.threadId === first.thread.threadId);
  await worker?.terminate();
  const reason = await pool.end(first.thread);
  assert.equal(reason?.code, "THREAD_DIED");
  assert.match(reason?.message ?? "", /executor thread 1 ended/);
  await gone(first.pid);
  pool.executors.dispatch(second.thread, [run(2)]);
  const { results } = await pool.heard("results", second.thread);
  assert.equal(results[0]?.outcome, "ended");
});

it("reports a thread that failed with an exception, and starts another one", async (test) => {
  const pool = startPool(test);
  const { thread, pid } = await pool.open(1);
  await sabotage({ thread: "executor", how: "throw" });
  assert.match((await pool.end(thread))?.message ?? "", /sabotage/);
  await gone(pid);
  await pool.open(2);
});

it("terminates a thread that does not acknowledge a payload in time", async (test) => {
  const pool = startPool(test);
  const { thread, pid } = await pool.open(1);
  pool.limit.closeMs = 100;
  await sabotage({ thread: "executor", how: "block" });
  pool.executors.dispatch(thread, [run(1)]);
  assert.equal((await pool.end(thread))?.code, "THREAD_DIED");
  await gone(pid);
  assert.equal(workers.size, 0);
});

it("terminates a thread that hangs before its first message", async (test) => {
  const pool = startPool(test);
  pool.limit.closeMs = 100;
  preload.source = "for (;;);";
  const thread = pool.executors.start();
  preload.source = "";
  assert.equal((await pool.end(thread))?.code, "THREAD_DIED");
  assert.equal(workers.size, 0);
});

it("leaves no thread or connection behind, and can start again", async (test) => {
  const pool = startPool(test);
  for (let round = 0; round < 2; round += 1) {
    const opened = [await pool.open(2 * round), await pool.open(2 * round + 1)];
    assert.equal(workers.size, 2);
    await pool.executors.end();
    assert.equal(workers.size, 0);
    assert.equal(pool.executors.threads.size, 0);
    for (const { thread, pid } of opened) {
      assert.equal(await pool.end(thread), null, "it was told to");
      await gone(pid);
    }
  }
});

it("ends threads that are still starting", async (test) => {
  const pool = startPool(test);
  const threads = [pool.executors.start(), pool.executors.start()];
  await pool.executors.end();
  for (const thread of threads) await pool.end(thread);
  assert.equal(workers.size, 0);
});

it("keeps one idle thread, without its sessions, for the next manager", async (test) => {
  const pools = new ExecutorPools();
  const first = startPool(test, pools);
  const { thread, pid } = await first.open(1);
  await first.executors.end({ keepsOne: true });
  assert.equal(await first.end(thread), null);
  await gone(pid);
  assert.equal(workers.size, 1);
  const second = startPool(test, pools);
  const { thread: next } = await second.open(1);
  assert.equal(next.threadId, thread.threadId);
  second.executors.dispatch(next, [run(1)]);
  const { results } = await second.heard("results", next);
  assert.equal(results[0]?.outcome, "ended");
  await second.executors.end();
  assert.equal(workers.size, 0);
});

it("keeps no thread if a manager had two, and starts one in place of a kept one that has died", async (test) => {
  const pools = new ExecutorPools();
  const first = startPool(test, pools);
  const two = [await first.open(1), await first.open(2)];
  await first.executors.end({ keepsOne: true });
  for (const { pid } of two) await gone(pid);
  assert.equal(workers.size, 0);
  await first.open(1);
  await first.executors.end({ keepsOne: true });
  const [kept] = workers;
  await kept?.terminate();
  await first.open(1);
  assert.equal(workers.size, 1);
});

it("ends a kept thread whose code fails, without an error for anybody", async (test) => {
  const pools = new ExecutorPools();
  const pool = startPool(test, pools);
  await pool.open(1);
  await pool.executors.end({ keepsOne: true });
  const [kept] = workers;
  const exited = new Promise((resolve) => kept?.once("exit", resolve));
  await sabotage({ thread: "executor", how: "throw" });
  await exited;
  await pool.open(1);
  assert.equal(workers.size, 1);
});

it("loads no ES module in an executor thread, because ending a thread meanwhile can abort the process", async () => {
  const source = await readFile(new URL("../../../../src/executor/host.cjs", import.meta.url), "utf8");
  assert.match(source, /\bmodule\.exports ?= ?/);
  assert.doesNotMatch(source, /\bimport\(|^import\b/m);
});
