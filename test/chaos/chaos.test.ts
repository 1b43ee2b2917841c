import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "../../src/shared/postgres/client.js";
import { Cluster } from "./cluster.js";
import { faults, remoteFaults, resolvePrepared } from "./faults.js";
import { verify, prepare, produce, stopRefusing, unfinished } from "./flow.js";
import { judgeOptionRows } from "./optionJudge.js";
import { finishOptions, hasUsers, OptionProducer, startOptions } from "./options.js";
import { Random } from "./random.js";
import { collectEffects, hasRemote, prepareRemote } from "./remotes.js";
import { judgeSchedules } from "./scheduleJudge.js";
import {
  holdSchedules,
  letSchedulesGo,
  schedulesFor,
  startSchedules,
  stopSchedules,
  waitingSchedules,
} from "./schedules.js";
import { judgeSleepers, prepareSleepers, unfinishedSleepers, wakeOne } from "./sleepers.js";
import { withConnectionTo } from "../support/connectTo.js";

/** Set by `npm run chaos`; by default a short run with a random seed. */
const seconds = Number(process.env["CHAOS_SECONDS"] ?? 15);
const seed = Number(process.env["CHAOS_SEED"] ?? Math.floor(Math.random() * 2 ** 31));

/** Faults whose names contain this text. */
const only = process.env["CHAOS_ONLY"] ?? "";
const injected = [...faults, ...(hasRemote ? remoteFaults : [])].filter(({ name }) => name.includes(only));

/** Whether there are also tables that fall asleep after a second. */
const asleep = process.env["CHAOS_ASLEEP"] === "1";
/** Whether the sessions are divided among shares. */
const shares = process.env["CHAOS_SHARES"] === "1";

const producers = 3;
const schedules = schedulesFor(seconds);
/** Longest time between two faults, and between two inserts of a producer, in ms. */
const maxFaultPauseMs = 1500;
const maxInsertPauseMs = 30;
/** Longest time between two tables that are woken, in ms. Each can fall asleep before. */
const maxWakePauseMs = 1500;
/** Tasks count as stuck if none of them ends for this long after the last fault, in ms. */
const stuckMs = 120_000;

test(`every task has its effect once and every schedule goes on under random faults (seed ${seed}, ${seconds} s)`, async (t) => {
  const cluster = await Cluster.start({ asleep, remote: hasRemote, shares, users: hasUsers });
  try {
    await withConnectionTo(cluster.url, async (client) => {
      await prepare(client);
      await startOptions(client);
      await startSchedules(client, schedules);
      await prepareSleepers(client);
      if (hasRemote) await prepareRemote(client, cluster.second);
    });
    const until = performance.now() + seconds * 1000;
    const injecting = injectFaultsUntil(cluster, until, (line) => t.diagnostic(line));
    await Promise.all([
      injecting,
      ...Array.from({ length: producers }, (_, each) => produceUntil(cluster, until, each)),
      ...(asleep ? [wakeUntil(cluster, until)] : []),
    ]);
    // Of silent connections to the second server, pg-task has to find out itself.
    cluster.first.network.breakSilent();
    await withConnectionTo(cluster.url, async (client) => {
      await stopRefusing(client);
      await resolvePrepared(client);
      await waitForAllEnded(client, cluster);
      if (hasRemote) t.diagnostic(await collectEffects(client, cluster.second));
    });
    const { tasks, proven, wrong } = await withConnectionTo(cluster.url, verify);
    const judged = await withConnectionTo(cluster.url, (client) => judgeSchedules(client, schedules));
    const options = await withConnectionTo(cluster.url, judgeOptionRows);
    const woken = asleep ? await withConnectionTo(cluster.url, judgeSleepers) : { summary: "no sleepers", wrong: [] };
    t.diagnostic(woken.summary);
    t.diagnostic(options.summary);
    t.diagnostic(`between commit and result: ${proven}`);
    t.diagnostic(
      `${tasks} tasks, ${await injecting} faults, ${schedules.length} schedules, ${judged.runs} times served, ${judged.suspensions} suspensions`,
    );
    assert.ok(tasks > 0);
    assert.deepEqual([...wrong, ...judged.wrong, ...options.wrong, ...woken.wrong], [], cluster.logs());
  } finally {
    await cluster.stop();
  }
});

async function injectFaultsUntil(cluster: Cluster, until: number, report: (line: string) => void): Promise<number> {
  const random = new Random(seed);
  let count = 0;
  for (; performance.now() < until; count += 1) {
    const fault = random.pickWeighted(injected);
    if (seconds <= 60) report(fault.name);
    await tolerateOutage(until, () =>
      withConnectionTo(cluster.url, async (client) => {
        await resolvePrepared(client);
        await fault.inject(cluster, random, client);
      }),
    );
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

async function wakeUntil(cluster: Cluster, until: number): Promise<void> {
  const random = new Random(seed + 1 + producers);
  while (performance.now() < until) {
    await tolerateOutage(until, () => withConnectionTo(cluster.url, (client) => wakeOne(client, random)));
    await sleep(random.below(maxWakePauseMs));
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

/** Waits until nothing is open any more. Fails if it does not become less, or, with `goesOn`, if it stays the same. */
async function settle(cluster: Cluster, open: () => Promise<readonly unknown[]>, goesOn = false): Promise<void> {
  let [limit, last, fewest] = [performance.now() + stuckMs, "", Infinity];
  for (;;) {
    const rows = await open();
    if (rows.length === 0) return;
    const found = JSON.stringify(rows, null, 1);
    if (rows.length < fewest || (goesOn && found !== last)) limit = performance.now() + stuckMs;
    last = found;
    fewest = Math.min(fewest, rows.length);
    if (performance.now() > limit) assert.fail(`stuck: ${found.slice(0, 10_000)}\n${cluster.logs()}`);
    await sleep(100);
  }
}

/** Waits until all tasks have ended, and every schedule has run for a time after now or has ended by itself, and then stops it. */
async function waitForAllEnded(client: Client, cluster: Cluster): Promise<void> {
  await settle(cluster, () => unfinished(client));
  if (asleep) await settle(cluster, () => unfinishedSleepers(client));
  const { rows } = await client.query<{ now: string }>("SELECT now()::text AS now");
  const since = rows[0]?.now ?? "";
  await letSchedulesGo(client);
  // A schedule that makes up for missed times may take as long as it needs, as long as it goes on.
  await settle(cluster, () => waitingSchedules(client, schedules, since), true);
  // While one is behind, its next run is claimed as soon as it is planned, so that it is seldom found waiting.
  await settle(cluster, () => stopSchedules(client), true);
  await settle(cluster, () => finishOptions(client, since));
}
