import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "../../src/shared/postgres/client.js";
import { Cluster } from "./cluster.js";
import { pickFault } from "./faults.js";
import { verify, prepare, produce, stopRefusing, countUnfinished } from "./flow.js";
import { judgeOptionRows } from "./optionRows.js";
import { finishOptions, OptionProducer, startOptions } from "./options.js";
import { Random } from "./random.js";
import { judgeSchedules } from "./scheduleJudge.js";
import {
  holdSchedules,
  letSchedulesGo,
  schedulesFor,
  startSchedules,
  stopSchedules,
  waitingSchedules,
} from "./schedules.js";
import { withConnectionTo } from "../support/connectTo.js";

/** Set by `npm run chaos`; by default a short run with a random seed. */
const seconds = Number(process.env["CHAOS_SECONDS"] ?? 15);
const seed = Number(process.env["CHAOS_SEED"] ?? Math.floor(Math.random() * 2 ** 31));

const producers = 3;
const schedules = schedulesFor(seconds);
/** Longest time between two faults, and between two inserts of a producer, in ms. */
const maxFaultPauseMs = 1500;
const maxInsertPauseMs = 30;
/** How long after the last fault a task must have ended, in ms. After that, it counts as stuck. */
const stuckMs = 120_000;

test(`every task has its effect once and every schedule goes on under random faults (seed ${seed}, ${seconds} s)`, async (t) => {
  const cluster = await Cluster.start();
  try {
    await withConnectionTo(cluster.url, async (client) => {
      await prepare(client);
      await startOptions(client);
      await startSchedules(client, schedules);
    });
    const until = performance.now() + seconds * 1000;
    const faults = injectFaultsUntil(cluster, until, (line) => t.diagnostic(line));
    await Promise.all([faults, ...Array.from({ length: producers }, (_, each) => produceUntil(cluster, until, each))]);
    cluster.network.breakSilent();
    await withConnectionTo(cluster.url, async (client) => {
      await stopRefusing(client);
      await waitForAllEnded(client, cluster);
      await Promise.all([waitForSchedules(client, cluster), waitForOptions(client, cluster)]);
    });
    const { tasks, wrong } = await withConnectionTo(cluster.url, verify);
    const judged = await withConnectionTo(cluster.url, (client) => judgeSchedules(client, schedules));
    const options = await withConnectionTo(cluster.url, judgeOptionRows);
    t.diagnostic(options.summary);
    t.diagnostic(`${tasks} tasks, ${await faults} faults, ${schedules.length} schedules, ${judged.runs} times served`);
    assert.ok(tasks > 0);
    assert.deepEqual([...wrong, ...judged.wrong, ...options.wrong], [], cluster.logs());
  } finally {
    await cluster.stop();
  }
});

async function injectFaultsUntil(cluster: Cluster, until: number, report: (line: string) => void): Promise<number> {
  const random = new Random(seed);
  let count = 0;
  for (; performance.now() < until; count += 1) {
    const fault = pickFault(random);
    if (seconds <= 60) report(fault.name);
    await tolerateOutage(until, () => withConnectionTo(cluster.url, (client) => fault.inject(cluster, random, client)));
    await sleep(random.below(maxFaultPauseMs));
  }
  return count;
}

async function produceUntil(cluster: Cluster, until: number, number: number): Promise<void> {
  const random = new Random(seed + 1 + number);
  const options = new OptionProducer(random);
  while (performance.now() < until) {
    await tolerateOutage(until, () =>
      withConnectionTo(cluster.url, async (client) => {
        while (performance.now() < until) {
          await produce(client, random);
          await holdSchedules(client, random);
          await options.step(client);
          await sleep(random.below(maxInsertPauseMs));
        }
      }),
    );
  }
}

/**
 * Errors of a server that is stopping, starting or down. The errors of sockets have other codes than SQLSTATEs. P0001 is
 * raised by the trigger that sometimes rejects a row.
 */
const isExpected = (error: unknown): boolean => {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  return !/^[0-9A-Z]{5}$/.test(code) || /^(08|57P|P0001)/.test(code);
};

/** Tolerates expected errors: the server may be down at any moment. */
async function tolerateOutage(until: number, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (performance.now() > until + stuckMs || !isExpected(error)) throw error;
    await sleep(50);
  }
}

async function waitForAllEnded(client: Client, cluster: Cluster): Promise<void> {
  const limit = performance.now() + stuckMs;
  while ((await countUnfinished(client)) > 0) {
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

/**
 * Waits until every schedule has run for a time after the last fault or has ended by itself, and then stops them. One that
 * makes up for missed times may take as long as it needs, as long as it goes on.
 */
async function waitForSchedules(client: Client, cluster: Cluster): Promise<void> {
  let limit = performance.now() + stuckMs;
  let progress = "";
  const { rows } = await client.query<{ now: string }>("SELECT now()::text AS now");
  await letSchedulesGo(client);
  for (;;) {
    const waiting = await waitingSchedules(client, schedules, rows[0]?.now ?? "");
    if (waiting.length === 0) break;
    const { rows: ended } = await client.query<{ count: number }>(
      "SELECT count(*)::integer AS count FROM task WHERE data = ANY ($1) AND stop IS NOT NULL",
      [waiting],
    );
    const reached = `${waiting.length} ${ended[0]?.count}`;
    if (reached !== progress) limit = performance.now() + stuckMs;
    progress = reached;
    if (performance.now() > limit) {
      const { rows: unfinished } = await client.query(
        `SELECT * FROM task WHERE state IN ('PLAN', 'TAKE', 'WORK') AND data = ANY ($1)`,
        [waiting],
      );
      assert.fail(`schedules stand still: ${JSON.stringify([waiting, unfinished], null, 1)}\n${cluster.logs()}`);
    }
    await sleep(100);
  }
  limit = performance.now() + stuckMs;
  while ((await stopSchedules(client)) > 0) {
    if (performance.now() > limit) assert.fail(`schedules do not stop\n${cluster.logs()}`);
    await sleep(100);
  }
}

/** Waits until the tasks with options have ended, and nothing is left of what they waited for. */
async function waitForOptions(client: Client, cluster: Cluster): Promise<void> {
  const limit = performance.now() + stuckMs;
  const { rows } = await client.query<{ now: string }>("SELECT now()::text AS now");
  for (;;) {
    const open = await finishOptions(client, rows[0]?.now ?? "");
    if (open.length === 0) return;
    if (performance.now() > limit) assert.fail(`stuck: ${JSON.stringify(open, null, 1)}\n${cluster.logs()}`);
    await sleep(100);
  }
}
