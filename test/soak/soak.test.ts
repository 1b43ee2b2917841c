import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Client } from "../../src/shared/postgres/client.js";
import { Random } from "../chaos/random.js";
import { startProcess, type TestProcess } from "../support/process.js";
import { insert, prepare, produce } from "./flow.js";
import { disturbances, type Locked } from "./disturbances.js";
import { describe, StallDetector, type Limits } from "./watch.js";
import { withConnectionTo } from "../support/connectTo.js";
import { RestartableServer } from "../support/restartableServer.js";

/** Set by `npm run soak`; by default a short run with a random seed. */
const seconds = Number(process.env["SOAK_SECONDS"] ?? 15);
const seed = Number(process.env["SOAK_SEED"] ?? Math.floor(Math.random() * 2 ** 31));

const disturberCount = 4;
const maxProducePauseMs = 400;
const maxDisturbancePauseMs = 120;
/** How long disturbances continue before all tasks have to end, in ms. */
const roundMs = 12_000;
/** How long after the last disturbance a task must have ended, in ms. After that, it counts as stuck. */
const stuckMs = 60_000;

test(`every due task that may start is claimed under random changes (seed ${seed}, ${seconds} s)`, async (t) => {
  const random = new Random(seed);
  const { url } = await RestartableServer.started({ max_connections: 120 });
  // So that the table stays small.
  await withConnectionTo(url, (client) => client.query("ALTER DATABASE postgres SET pg_task.keep = '20 sec'"));
  const limits: Limits = { sessions: random.pick([4, 16, 64]), run: 1000 };
  const process = await startProcess({
    config: {
      url,
      "pg_conf.max": limits.sessions,
      "pg_task.run": limits.run,
      "pg_conf.grace": 1000,
    },
    until: "ready",
  });
  await withConnectionTo(url, prepare);
  const locked: Locked = new Set();
  const watch = new StallDetector(limits, locked);
  const over = new AbortController();
  const fail = async (why: string): Promise<never> => {
    over.abort();
    const seen = await withConnectionTo(url, describe);
    const log = process.output.stdout.split("\n").slice(-60).join("\n");
    assert.fail(`${why}\n${seen}\nlog\n${log}${process.output.stderr}`);
  };
  const watched = withConnectionTo(url, async (client) => {
    const stall = await watch.until(client, over.signal);
    if (stall !== null) await fail(`not claimed: ${JSON.stringify(stall)}`);
  });
  const until = performance.now() + seconds * 1000;
  let rounds = 0;
  const soak = async (): Promise<void> => {
    for (; performance.now() < until && !over.signal.aborted; rounds += 1) {
      const end = Math.min(until, performance.now() + roundMs);
      await round({ url, process, random, locked, limits, watch, end, signal: over.signal });
      await withConnectionTo(url, (client) => waitForAllEnded(client, over.signal, fail));
    }
    over.abort();
  };
  await Promise.all([watched, soak()]);
  const reportedStalls = process.linesMatching("due tasks do not start although sessions are free");
  assert.deepEqual(reportedStalls, []);
  t.diagnostic(`${rounds} rounds, ${limits.sessions} sessions, maximum wait ${Math.round(watch.maxWaitMs)} ms`);
});

interface Round {
  readonly url: string;
  readonly process: TestProcess;
  readonly random: Random;
  readonly locked: Locked;
  readonly limits: Limits;
  readonly watch: StallDetector;
  readonly end: number;
  readonly signal: AbortSignal;
}

/** Produces and disturbs tasks until the time `end`, then inserts many new ones. */
async function round({ url, process, random, locked, limits, watch, end, signal }: Round): Promise<void> {
  const goesOn = (): boolean => performance.now() < end && !signal.aborted;
  const seeded = (): Random => new Random(random.below(2 ** 31));
  const repeatedly = async (work: (client: Client, own: Random) => Promise<unknown>, ms: number) =>
    await withConnectionTo(url, async (client) => {
      const own = seeded();
      while (goesOn()) {
        await work(client, own);
        await sleep(own.below(ms));
      }
    });
  await Promise.all([
    repeatedly(produce, maxProducePauseMs),
    ...Array.from({ length: disturberCount }, () =>
      repeatedly(async (client, own) => {
        try {
          await own.pickWeighted(disturbances).apply(client, own, locked);
        } catch (error) {
          await client.query("ROLLBACK");
          if (!(error instanceof Error && error.message.includes("deadlock"))) throw error;
        }
      }, maxDisturbancePauseMs),
    ),
    repeatedly(async (client, own) => {
      await sleep(own.below(4000));
      limits.run = own.pick([1, 3, 1000]);
      await client.query(`ALTER DATABASE postgres SET pg_task.run = ${limits.run}`);
      process.child.kill("SIGHUP");
      watch.reset();
    }, 1000),
  ]);
  await withConnectionTo(url, async (client) => {
    limits.run = 1000;
    await client.query("ALTER DATABASE postgres RESET pg_task.run");
    process.child.kill("SIGHUP");
    watch.reset();
    // Stops long tasks, and sometimes also all tasks that are not running. The manager's heads are then outdated when
    // the new tasks arrive.
    const given = random.pick(["input LIKE '%sleep%'", "state <> 'WORK' OR input LIKE '%sleep%'"]);
    await client.query(`UPDATE task SET state = 'STOP' WHERE state IN ('PLAN', 'TAKE', 'WORK') AND (${given})`);
    const fresh = Array.from({ length: 300 }, (_, nth) => ({
      input: "SELECT 1",
      group: `fresh ${nth % 100}`,
      max: 0,
      inMs: 0,
    }));
    await insert(client, fresh);
  });
}

/** Resolves when all tasks have ended. */
async function waitForAllEnded(
  client: Client,
  signal: AbortSignal,
  fail: (why: string) => Promise<never>,
): Promise<void> {
  const limit = performance.now() + stuckMs;
  while (!signal.aborted) {
    const { rows } = await client.query<{ left: number }>(
      `SELECT count(*)::integer AS left FROM task WHERE state IN ('PLAN', 'TAKE', 'WORK') OR owner IS NOT NULL`,
    );
    if (rows[0]?.left === 0) return;
    if (performance.now() > limit) await fail("some task never ended");
    await sleep(100);
  }
}
