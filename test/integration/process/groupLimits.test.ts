import assert from "node:assert/strict";
import { createDatabase } from "../../support/database.js";
import { test } from "../../support/limitedTest.js";
import { startProcess } from "../../support/process.js";
import { assertWithinLimits, count, gate, RandomTasks } from "../../support/randomTasks.js";

const database = await createDatabase();
const client = await database.connect();
const random = await RandomTasks.create(client);
const config = { url: database.url, "pg_task.sleep": 50, "pg_conf.max": 6 };

test("§4 and §8 groups keep their limits and no task runs twice at once when the process is killed", async () => {
  for (const seed of [4, 5]) {
    const killed = await startProcess({ config, until: "ready" });
    const ids = await random.insert(seed);
    await random.done(ids, count / 3);
    await killed.end("SIGKILL");
    const next = await startProcess({ config, until: "ready" });
    assertWithinLimits(await random.ended(ids, "run"));
    await random.assertNoneTwice();
    await next.stop();
  }
});

/** Terminates the connections that hold the locks of the leader and of the manager, but no sessions. */
async function depose(): Promise<void> {
  await client.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name ~ '^pg_(conf|work)' AND pid IN
       (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)`,
  );
}

/** Resolves when every task that can start has started. To find out, runs a task that comes after all others. */
async function allStarted(): Promise<void> {
  const { id, state } = await random.tasks.run("SELECT 1", { group: "last", max: 0 });
  assert.equal(state, "DONE", id);
}

test("§4 and §8 groups keep their limits and no task runs twice at once when processes hand over", async () => {
  // There are enough sessions for all tasks that the groups allow to run, and for the task of `allStarted`.
  const roomy = { config: { ...config, "pg_conf.max": 30 } };
  for (const seed of [6, 7]) {
    const leader = await startProcess({ ...roomy, until: "ready" });
    const others = [await startProcess(roomy), await startProcess(roomy)] as const;
    await Promise.all(others.map((each) => each.line("standby")));
    const ids = await random.insert(seed);
    await random.done(ids, count / 3);
    // An orderly handover: one process finishes its tasks while the next one already leads.
    const stopped = leader.end();
    await Promise.race(others.map((each) => each.line("ready")));
    assert.equal((await stopped).code, 0);
    const [next, last] = others[0].linesMatching("ready").length > 0 ? others : others.toReversed();
    assert.ok(next !== undefined && last !== undefined);
    // A forced handover: the old leader is suspended and does not notice that it lost its locks, while its sessions
    // continue.
    await client.query(`SELECT pg_advisory_lock(${gate})`);
    ids.push(...(await random.insert(seed + 10)));
    await allStarted();
    next.child.kill("SIGSTOP");
    await depose();
    await last.line("ready");
    await allStarted();
    await client.query(`SELECT pg_advisory_unlock(${gate})`);
    next.child.kill("SIGCONT");
    await next.line("standby", 2);
    // Either of the two processes may lead after that.
    await depose();
    assertWithinLimits(await random.ended(ids, "run"));
    await random.assertNoneTwice();
    for (const each of others) await each.stop();
  }
});
