import { setTimeout as pause } from "node:timers/promises";
import { one, type Database } from "../database.js";
import { LoadMeter, type Load } from "../loadMeter.js";
import { now } from "../clock.js";
import { median, percentile } from "../statistics.js";
import { pgbench } from "../subjects/pgbench.js";
import { steadyReference, steadySubjects, tasksLeft, type SteadySubject } from "../subjects/steady.js";
import { until } from "../until.js";
import type { Bench, Measure } from "./measure.js";

interface Run {
  readonly subject: string;
  readonly groups: number;
  /** Tasks per second. */
  readonly rate: number;
  readonly round: number;
  readonly tasks: number;
  /** For how long tasks were added. */
  readonly seconds: number;
  /** CPU time while the tasks were added and run, and while as many were only added. */
  readonly load: Load;
  readonly bare: Load;
  /** Times from the beginning of the transaction that adds a task to the task's start, in ms. */
  readonly start: { readonly p50: number; readonly p99: number };
  /** For some tasks, times from the answer to the commit until the task is seen as done, in ms. */
  readonly done: readonly number[];
}

export interface Steady {
  readonly runs: readonly Run[];
}

const allRates = [10, 50, 200, 500, 1000, 2000];
const quickRates = [50];
const groupCounts = [1, 200];
const producers = 8;
const minTasks = 100;
/** V8 compiles what runs often, so that a program needs some thousand tasks to become as fast as it stays. */
const warmUp = { seconds: 6, minRate: 500 };
const limitMs = 600_000;

async function run(bench: Bench): Promise<Steady> {
  const { options, subjects, say } = bench;
  const runs: Run[] = [];
  const wanted = steadySubjects.filter((steady) => subjects.some((subject) => isMeasuredWith(subject.name, steady)));
  for (const rate of options.quick ? quickRates : allRates) {
    for (const groups of groupCounts) {
      for (let round = 1; round <= options.rounds; round += 1) {
        for (const subject of wanted) {
          const measured = await runOnce(bench, subject, { rate, groups, round });
          runs.push(measured);
          say(`${rate}/s, ${groups} groups, round ${round}, ${subject.name}: ${perTask(measured).toFixed(2)} ms`);
        }
      }
    }
  }
  return { runs };
}

interface Situation {
  readonly rate: number;
  readonly groups: number;
  readonly round: number;
}

async function runOnce(bench: Bench, subject: SteadySubject, situation: Situation): Promise<Run> {
  const { node, options } = bench;
  const { rate, groups } = situation;
  const database = await bench.databases.make();
  try {
    const first = await subject.start(database, { node, groups });
    await first.stop();
    const seconds = Math.max(options.seconds, Math.ceil(minTasks / rate));
    const produce = async (duration: number, perSecond = rate): Promise<void> => {
      await pgbench(database.url, {
        script: subject.script(groups),
        clients: producers,
        mode: "prepared",
        amount: { seconds: duration },
        rate: perSecond,
      });
    };
    const bareMeter = await LoadMeter.begin(null, database.client);
    await produce(seconds);
    const bare = await bareMeter.end();
    const bareTasks = await tasksLeft(database.client, subject);
    await database.client.query(subject.clear);
    const queue = await subject.start(database, { node, groups });
    try {
      const drained = async (): Promise<void> => {
        const isDrained = async (): Promise<boolean> => (await tasksLeft(database.client, subject)) === 0;
        await until(isDrained, { everyMs: 20, limitMs, what: `all tasks of ${subject.name} are done` });
      };
      await produce(warmUp.seconds, Math.max(rate, warmUp.minRate));
      await drained();
      await queue.starts();
      const meter = await LoadMeter.begin(queue.pid, database.client);
      const probing = new AbortController();
      const [done] = await Promise.all([
        probe(database, subject, situation, probing.signal),
        produce(seconds).finally(() => probing.abort()),
      ]);
      await drained();
      const load = await meter.end();
      const starts = await queue.starts();
      const scale = starts.length / bareTasks;
      return {
        ...situation,
        subject: subject.name,
        tasks: starts.length,
        seconds,
        load,
        bare: { program: 0, server: bare.server * scale },
        start: { p50: percentile(starts, 0.5), p99: percentile(starts, 0.99) },
        done,
      };
    } finally {
      await queue.stop();
    }
  } finally {
    await database.drop();
  }
}

/** Adds a few tasks of its own, one after another, and polls each until it is done. Resolves to the times. */
async function probe(
  { client }: Database,
  subject: SteadySubject,
  { rate, groups }: Situation,
  ended: AbortSignal,
): Promise<number[]> {
  const times: number[] = [];
  const restMs = Math.max(100, 10_000 / rate);
  while (!ended.aborted) {
    const { id } = await one<{ id: string }>(client, subject.add(groups));
    const committed = now();
    const isDone = { name: "is done", text: subject.isDone, values: [id] };
    while ((await client.query(isDone)).rows.length === 0) await pause(1);
    times.push(now() - committed);
    await pause(restMs * (0.5 + Math.random()));
  }
  return times;
}

/** Returns the CPU time per task, in ms, without that of adding it. */
function perTask({ load, bare, tasks }: Run): number {
  return (load.program + load.server - bare.server) / tasks;
}

/** Returns the CPU time per task, in ms, with that of adding it. */
const perAddedTask = ({ load, tasks }: Run): number => (load.program + load.server) / tasks;

/** The subjects of this measure belong to those of the other measures. */
function isMeasuredWith(name: string, steady: SteadySubject): boolean {
  if (steady.name.startsWith("pg-boss")) return name === "pg-boss-best";
  const belongsToReference = steady.name === "bare-queue" || steady.name.startsWith("graphile-worker");
  return name === steady.name || (name === steadyReference && belongsToReference);
}

function rowsOf(runs: readonly Run[]): string[][] {
  const situations = allRates.flatMap((rate) => groupCounts.map((groups) => ({ rate, groups })));
  return situations.flatMap(({ rate, groups }) => {
    const here = runs.filter((each) => each.rate === rate && each.groups === groups);
    const of = (name: string): Run[] => here.filter(({ subject }) => subject === name);
    const ratio = (name: string, figure: (each: Run) => number): string => {
      const ratios = of(name).flatMap((each) => {
        const other = of(steadyReference).find(({ round }) => round === each.round);
        return other === undefined ? [] : [figure(each) / figure(other)];
      });
      return ratios.length === 0 ? "" : median(ratios).toFixed(2);
    };
    return steadySubjects.flatMap(({ name, title }) => {
      const those = of(name);
      if (those.length === 0) return [];
      const done = those.flatMap((each) => each.done);
      return [
        [
          `${rate}/s, ${groups === 1 ? "one group" : `${groups} groups`}`,
          title,
          median(those.map(({ tasks, seconds }) => tasks / seconds)).toFixed(0),
          median(those.map(perTask)).toFixed(2),
          ratio(name, perTask),
          median(those.map(perAddedTask)).toFixed(2),
          ratio(name, perAddedTask),
          median(those.map(({ start }) => start.p50)).toFixed(1),
          ratio(name, ({ start }) => start.p50),
          median(those.map(({ start }) => start.p99)).toFixed(1),
          percentile(done, 0.5).toFixed(1),
          percentile(done, 0.99).toFixed(1),
        ],
      ];
    });
  });
}

export const steady: Measure<Steady> = {
  name: "steady",
  concerns: (subject) => steadySubjects.some((each) => isMeasuredWith(subject.name, each)),
  run,
  report: ({ runs }) => ({
    title: "Single tasks at a steady rate",
    head: [
      "",
      "",
      "added per second",
      "CPU, ms",
      "ratio",
      "CPU with adding, ms",
      "ratio",
      "start, p50",
      "ratio",
      "start, p99",
      "seen as done, p50",
      "seen as done, p99",
    ],
    rows: rowsOf(runs),
    note: "Single tasks at random times, added by eight clients of pgbench, which add fewer than they should if the server does not take them in time. “CPU with adding” is the CPU time per task of the program and of the server together. “CPU” is the same without what the server needs to add a task while no program runs. The start is counted from the beginning of the transaction that adds the task: for pg-task until its SQL reads the server's clock, for the others until the first line of the handler. “Seen as done” is counted from the commit until a connection that polls finds the task done, for at most ten tasks per second. All times are in ms. Ratios are to graphile-worker's best setting in the same round. All figures are medians of the rounds, except that the last two columns are percentiles of all rounds together.",
  }),
};
