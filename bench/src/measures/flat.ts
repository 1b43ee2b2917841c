import { setTimeout as pause } from "node:timers/promises";
import type { Client } from "pg";
import { now } from "../clock.js";
import { connect, one, type Database } from "../database.js";
import { startPgTask } from "../pgTaskProcess.js";
import { coreMsOfThread } from "../processUsage.js";
import { bestConfiguration, tasksDone } from "../subjects/pgTask.js";
import type { Bench, Measure } from "./measure.js";

interface Window {
  readonly situation: string;
  readonly round: number;
  readonly tasks: number;
  readonly ms: number;
  /** CPU time of the manager's backend, in ms. */
  readonly coreMs: number;
}

export interface Flat {
  readonly windows: readonly Window[];
}

interface Sizes {
  /** Number of due tasks in a small case. */
  readonly tasks: number;
  /** Number of rows in a large table. */
  readonly rows: number;
}

interface Situation {
  readonly name: string;
  readonly title: string;
  /** Name of the small case to compare with. */
  readonly baseline: string;
  /** Statements that insert tasks before pg-task starts. */
  readonly fill: (sizes: Sizes) => readonly string[];
  /** Statement that inserts tasks that run before the measurement, while a snapshot is held. */
  readonly churn?: (sizes: Sizes) => string;
  /** Statement that inserts tasks once pg-task runs. */
  readonly due?: (sizes: Sizes) => string;
}

const numbers = (many: number): string => `generate_series(1, ${many}) AS n`;
const many = 1_000_000_000;
const oneGroup = (tasks: number): string =>
  `INSERT INTO task (input, max) SELECT 'SELECT 1', ${many} FROM ${numbers(tasks)}`;
const groups = (tasks: number, of: number): string =>
  `INSERT INTO task (input, "group") SELECT 'SELECT 1', 'group ' || n % ${of} FROM ${numbers(tasks)}`;

const situations: readonly Situation[] = [
  {
    name: "small",
    title: "a few due in one group",
    baseline: "small",
    fill: ({ tasks }) => [oneGroup(tasks)],
  },
  {
    name: "due",
    title: "(a) many due in one group",
    baseline: "small",
    fill: ({ rows }) => [oneGroup(rows)],
  },
  {
    name: "later",
    title: "(c) many planned for next year, inserted first, same group",
    baseline: "small",
    fill: ({ tasks, rows }) => [
      `INSERT INTO task (input, max, plan) SELECT 'SELECT 1', ${many}, now() + interval '1 year' FROM ${numbers(rows)}`,
      oneGroup(tasks),
    ],
  },
  {
    name: "finished",
    title: "(e) ten times as many finished",
    baseline: "small",
    fill: ({ tasks, rows }) => [
      `INSERT INTO task (input, max, state, take, start, stop, output) SELECT 'SELECT 1', ${many}, 'DONE', d, d, d, '1' FROM ${numbers(rows * 10)}, (SELECT now() - interval '1 day') AS t(d)`,
      oneGroup(tasks),
    ],
  },
  {
    name: "snapshot",
    title: "(f) a snapshot held open while a tenth as many ran",
    baseline: "small",
    fill: () => [],
    churn: ({ rows }) => oneGroup(Math.ceil(rows / 10)),
    due: ({ tasks }) => oneGroup(tasks),
  },
  {
    name: "max",
    title: "(g) many due in one group, each with another `max`",
    baseline: "small",
    fill: ({ rows }) => [`INSERT INTO task (input, max) SELECT 'SELECT 1', 1000000 + n FROM ${numbers(rows)}`],
  },
  {
    name: "small-groups",
    title: "a few due in 1,000 groups",
    baseline: "small-groups",
    fill: ({ tasks }) => [groups(tasks, 1000)],
  },
  {
    name: "groups",
    title: "(b) many due, ten in a group",
    baseline: "small-groups",
    fill: ({ rows }) => [groups(rows, Math.ceil(rows / 10))],
  },
  {
    name: "blocked",
    title: "(d) many behind a group at its limit, a few due in 1,000 groups",
    baseline: "small-groups",
    fill: ({ tasks, rows }) => [
      `INSERT INTO task (input, "group") VALUES ('SELECT pg_sleep(86400)', 'blocked')`,
      `INSERT INTO task (input, "group") SELECT 'SELECT 1', 'blocked' FROM ${numbers(rows)}`,
      groups(tasks, 1000),
    ],
  },
];

async function run(bench: Bench): Promise<Flat> {
  const windows: Window[] = [];
  for (let round = 1; round <= bench.options.rounds; round += 1) {
    for (const situation of situations) {
      const database = await bench.databases.make();
      try {
        const window = await runOnce(bench, database, situation);
        windows.push({ situation: situation.name, round, ...window });
        const rate = Math.round((window.tasks * 1000) / window.ms);
        const per = ((window.coreMs * 100) / window.tasks).toFixed(2);
        bench.say(`round ${round}, ${situation.name}: ${rate}/s, ${per} ms of core per 100`);
      } finally {
        await database.drop();
      }
    }
  }
  return { windows };
}

async function runOnce(
  { node, options }: Bench,
  { client, url }: Database,
  situation: Situation,
): Promise<Omit<Window, "situation" | "round">> {
  const configuration = { ...bestConfiguration, "pg_conf.grace": 0 };
  await (await startPgTask({ node, url, configuration })).stop();
  for (const statement of situation.fill(options)) await client.query(statement);
  // The pages of the bulk insert are written now, so that they are not written during the measurement.
  await client.query("CHECKPOINT");
  const program = await startPgTask({ node, url, configuration });
  try {
    const held = await churn(client, url, situation, options);
    const begin = now();
    const due = situation.due?.(options);
    if (due !== undefined) await client.query(due);
    const samples = await watchManager(client, options.seconds * 1000);
    await held?.end();
    return await middle(client, begin, samples);
  } finally {
    await program.stop();
  }
}

/**
 * Runs the `churn` tasks of a situation while a snapshot is held.
 *
 * @returns the connection that still holds the snapshot; null if the situation has no such tasks
 */
async function churn(client: Client, url: string, situation: Situation, sizes: Sizes): Promise<Client | null> {
  if (situation.churn === undefined) return null;
  const holder = await connect(url);
  await holder.query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM task");
  await client.query(situation.churn(sizes));
  await tasksDone(client, sizes.rows);
  return holder;
}

interface Sample {
  readonly at: number;
  readonly coreMs: number;
}

/** Samples the CPU time of the manager's backend from /proc, so that sampling needs no queries. */
async function watchManager(client: Client, ms: number): Promise<readonly Sample[]> {
  const { pid } = await one<{ pid: number }>(
    client,
    `SELECT pid FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'pg\\_work %' LIMIT 1`,
  );
  const samples: Sample[] = [];
  const start = now();
  while (now() - start < ms) {
    samples.push({ at: now(), coreMs: await coreMsOfThread(pid) });
    await pause(20);
  }
  return samples;
}

/** Returns the rate and the cost, without the first and the last tenth of the completed tasks. */
async function middle(
  client: Client,
  begin: number,
  samples: readonly Sample[],
): Promise<Omit<Window, "situation" | "round">> {
  const { rows } = await client.query<{ at: number }>(
    `SELECT (extract(epoch FROM stop) * 1000)::float8 AS at FROM task
     WHERE stop BETWEEN to_timestamp($1 / 1000.0) AND to_timestamp($2 / 1000.0) ORDER BY stop`,
    [begin, samples.at(-1)?.at ?? begin],
  );
  const first = rows[Math.floor(rows.length * 0.1)];
  const last = rows[Math.floor(rows.length * 0.9)];
  if (first === undefined || last === undefined || rows.length < 20) {
    throw new Error(`expected at least 20 completed tasks, got ${rows.length}`);
  }
  return {
    tasks: Math.floor(rows.length * 0.9) - Math.floor(rows.length * 0.1),
    ms: last.at - first.at,
    coreMs: coreAt(samples, last.at) - coreAt(samples, first.at),
  };
}

function coreAt(samples: readonly Sample[], at: number): number {
  const after = samples.find((sample) => sample.at >= at) ?? samples.at(-1);
  const before = samples.findLast((sample) => sample.at < at) ?? samples[0];
  if (before === undefined || after === undefined) return 0;
  const part = after.at === before.at ? 0 : (at - before.at) / (after.at - before.at);
  return before.coreMs + part * (after.coreMs - before.coreMs);
}

export const flat: Measure<Flat> = {
  name: "flat",
  concerns: ({ name }) => name === "pg-task",
  run,
  report: ({ windows }) => {
    const of = (name: string) => windows.filter(({ situation }) => situation === name);
    const ratio = (name: string, baseline: string, value: (window: Window) => number): string => {
      const mean = (list: readonly Window[]): number =>
        list.reduce((sum, window) => sum + value(window), 0) / list.length;
      return (mean(of(name)) / mean(of(baseline))).toFixed(2);
    };
    return {
      title: "With a large table",
      head: ["", "tasks/s, relative to the small case", "manager's server time per task, relative to the small case"],
      rows: situations
        .filter(({ name, baseline }) => name !== baseline)
        .map(({ name, title, baseline }) => [
          title,
          ratio(name, baseline, ({ tasks, ms }) => tasks / ms),
          ratio(name, baseline, ({ tasks, coreMs }) => coreMs / tasks),
        ]),
      note: "“Many” is the number given by `--rows` below. In the small case, only the tasks given by `--tasks` are due: in 1,000 groups for (b) and (d), and in one group for all others. The manager's server time is the CPU time that the backend of the manager's connection spent on claims and completions.",
    };
  },
};
