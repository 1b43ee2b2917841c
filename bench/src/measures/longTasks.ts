import { setTimeout as pause } from "node:timers/promises";
import type { Client } from "pg";
import { one } from "../database.js";
import { startPgTask } from "../pgTaskProcess.js";
import { residentKb } from "../processUsage.js";
import { median } from "../statistics.js";
import { until } from "../until.js";
import type { Bench, Measure } from "./measure.js";

interface Sample {
  readonly running: number;
  readonly residentKb: number;
}

export interface LongTasks {
  /** Samples of each round, in the order of `counts`. */
  readonly rounds: readonly (readonly Sample[])[];
}

const counts = [1, 200] as const;
const settleMs = 5000;

async function run(bench: Bench): Promise<LongTasks> {
  const rounds: (readonly Sample[])[] = [];
  for (let round = 0; round < bench.options.rounds; round += 1) rounds.push(await once(bench));
  return { rounds };
}

/** Measures a new process, because a process does not return memory to the operating system. */
async function once({ databases, node, say }: Bench): Promise<readonly Sample[]> {
  const database = await databases.make();
  const { client, url } = database;
  const most = Math.max(...counts);
  const configuration = { "pg_conf.max": most, "pg_conf.grace": 0 };
  const program = await startPgTask({ node, url, configuration });
  const samples: Sample[] = [];
  try {
    let there = 0;
    for (const running of counts) {
      await client.query(
        `INSERT INTO task (input, max) SELECT 'SELECT pg_sleep(3600)', ${most} FROM generate_series(1, ${running - there})`,
      );
      there = running;
      await allRun(client, running);
      await pause(settleMs);
      samples.push({ running, residentKb: await residentKb(program.pid) });
      say(`${running} running: ${samples.at(-1)?.residentKb} kB`);
    }
  } finally {
    await program.stop();
    await database.drop();
  }
  return samples;
}

async function allRun(client: Client, wanted: number): Promise<void> {
  const isSo = async (): Promise<boolean> => {
    const { running } = await one<{ running: number }>(
      client,
      `SELECT count(*)::integer AS running FROM pg_stat_activity
       WHERE datname = current_database() AND wait_event = 'PgSleep'`,
    );
    return running === wanted;
  };
  await until(isSo, { everyMs: 100, limitMs: 120_000, what: `${wanted} tasks run` });
}

export const longTasks: Measure<LongTasks> = {
  name: "long",
  concerns: ({ name }) => name === "pg-task",
  run,
  report: ({ rounds }) => {
    const each = rounds.map(([few, many]) =>
      few === undefined || many === undefined
        ? Number.NaN
        : (many.residentKb - few.residentKb) / (many.running - few.running),
    );
    const rows = counts.map((running, place) => {
      const kb = rounds.map((samples) => samples[place]?.residentKb ?? Number.NaN);
      return [String(running), (median(kb) / 1024).toFixed(0)];
    });
    return {
      title: "Long tasks at once",
      head: ["running", "memory, MB"],
      rows,
      note: `The figures are medians of the rounds. Each additional task takes ${median(each).toFixed(0)} kB of pg-task's memory (${each.map((kb) => kb.toFixed(0)).join(", ")} kB in the individual rounds).`,
    };
  },
};
