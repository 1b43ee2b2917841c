import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "../../src/shared/postgres/client.js";
import { onServer } from "../support/embedded.js";
import { Cluster } from "./cluster.js";
import { pickFault } from "./faults.js";
import { judge, prepare, produce, stopRefusing, unfinished } from "./flow.js";
import { Random } from "./random.js";

/** `npm run chaos` sets these; in the suite a short run does, with another seed each time. */
const seconds = Number(process.env["CHAOS_SECONDS"] ?? 15);
const seed = Number(process.env["CHAOS_SEED"] ?? Math.floor(Math.random() * 2 ** 31));

const producers = 3;
/** Longest pause between two faults, and between two inserts of a producer, in ms. */
const faultPauseMs = 1500;
const insertPauseMs = 30;
/** What has not ended this long after the last fault is stuck, in ms. */
const stuckMs = 120_000;

test(`whatever dies, each task ends and has its effect once (seed ${seed}, ${seconds} s)`, async (t) => {
  const cluster = await Cluster.start();
  try {
    await onServer(cluster.url, prepare);
    const until = performance.now() + seconds * 1000;
    const struck = strikeUntil(cluster, until, (line) => t.diagnostic(line));
    await Promise.all([
      struck,
      ...Array.from({ length: producers }, (_, each) => produceUntil(cluster, until, each)),
    ]);
    cluster.network.breakSilent();
    await onServer(cluster.url, async (client) => {
      await stopRefusing(client);
      await allEnded(client, cluster);
    });
    const { tasks, wrong } = await onServer(cluster.url, judge);
    t.diagnostic(`${tasks} tasks, ${await struck} faults`);
    assert.ok(tasks > 0);
    assert.deepEqual(wrong, [], cluster.logs());
  } finally {
    await cluster.stop();
  }
});

async function strikeUntil(
  cluster: Cluster,
  until: number,
  say: (line: string) => void,
): Promise<number> {
  const random = new Random(seed);
  let count = 0;
  for (; performance.now() < until; count += 1) {
    const fault = pickFault(random);
    if (seconds <= 60) say(fault.name);
    await persist(until, () =>
      onServer(cluster.url, (client) => fault.strike(cluster, random, client)),
    );
    await sleep(random.below(faultPauseMs));
  }
  return count;
}

async function produceUntil(cluster: Cluster, until: number, number: number): Promise<void> {
  const random = new Random(seed + 1 + number);
  while (performance.now() < until) {
    await persist(until, () =>
      onServer(cluster.url, async (client) => {
        while (performance.now() < until) {
          await produce(client, random);
          await sleep(random.below(insertPauseMs));
        }
      }),
    );
  }
}

/** The server may be away at any moment: that is what this is about. */
async function persist(until: number, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (performance.now() > until + stuckMs) throw error;
    await sleep(50);
  }
}

async function allEnded(client: Client, cluster: Cluster): Promise<void> {
  const limit = performance.now() + stuckMs;
  while ((await unfinished(client)) > 0) {
    if (performance.now() > limit) {
      const { rows } = await client.query(
        `SELECT id, state::text, data, owner, take, start, crash, "group" FROM task
         WHERE state IN ('PLAN', 'TAKE', 'WORK') OR owner IS NOT NULL ORDER BY id LIMIT 10`,
      );
      assert.fail(`stuck: ${JSON.stringify(rows, null, 1)}\n${cluster.logs()}`);
    }
    await sleep(100);
  }
}
