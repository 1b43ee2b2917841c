import { setTimeout as pause } from "node:timers/promises";
import type { Client } from "pg";
import { now } from "../clock.js";
import { one } from "../database.js";
import { startPgTask } from "../pgTaskProcess.js";
import { residentKb } from "../processUsage.js";
import { median } from "../statistics.js";
import { addTasks, bestConfiguration, checkTasks, tasksDone } from "../subjects/pgTask.js";
import { works } from "../work.js";
import type { Bench, Measure } from "./measure.js";

export interface Million {
  readonly tasks: number;
  /**
   * The tasks in the order of their stop times, divided into tenths: the first and the last stop time of each tenth, in
   * ms since 1970, and its number of tasks.
   */
  readonly tenths: readonly {
    readonly from: number;
    readonly to: number;
    readonly tasks: number;
  }[];
  /** Size of the table with indexes and TOAST, in bytes: before the tasks run, and when all of them are done. */
  readonly size: { readonly before: number; readonly after: number };
  /** Resident memory of pg-task, in kB. There is one sample for each second. */
  readonly memory: readonly { readonly at: number; readonly kb: number }[];
}

async function run({ databases, node, options, say }: Bench): Promise<Million> {
  const database = await databases.make();
  const { client, url } = database;
  const program = await startPgTask({ node, url, configuration: bestConfiguration });
  const memory: { at: number; kb: number }[] = [];
  const watching = new AbortController();
  const watch = async (): Promise<void> => {
    while (!watching.signal.aborted) {
      memory.push({ at: now(), kb: await residentKb(program.pid) });
      await pause(1000);
    }
  };
  try {
    const [select] = works;
    if (select === undefined) throw new Error("expected a kind of work, got none");
    await addTasks(client, select, 1, options.rows);
    const before = await tableSize(client);
    say(`${options.rows} tasks inserted`);
    const watched = watch();
    await tasksDone(client, options.rows);
    watching.abort();
    await watched;
    await checkTasks(client, options.rows);
    const after = await tableSize(client);
    const tenths = await client.query<{ from: number; to: number; tasks: number }>(
      `SELECT (extract(epoch FROM min(stop)) * 1000)::float8 AS "from",
         (extract(epoch FROM max(stop)) * 1000)::float8 AS "to", count(*)::integer AS tasks
       FROM (SELECT stop, ntile(10) OVER (ORDER BY stop) AS tenth FROM task) AS t
       GROUP BY tenth ORDER BY tenth`,
    );
    return { tasks: options.rows, tenths: tenths.rows, size: { before, after }, memory };
  } finally {
    watching.abort();
    await program.stop();
    await database.drop();
  }
}

async function tableSize(client: Client): Promise<number> {
  const { bytes } = await one<{ bytes: string }>(client, "SELECT pg_total_relation_size('task') AS bytes");
  return Number(bytes);
}

export const million: Measure<Million> = {
  name: "million",
  concerns: ({ name }) => name === "pg-task",
  run,
  report: ({ tasks, tenths, size, memory }) => {
    const rates = tenths.map((tenth) => (tenth.tasks * 1000) / (tenth.to - tenth.from));
    const middle = median(rates);
    const after = ({ to }: { readonly to: number }): number => memory.findLast(({ at }) => at <= to)?.kb ?? Number.NaN;
    return {
      title: `${tasks.toLocaleString("en")} tasks in one go`,
      head: ["tenth", ...tenths.map((_, i) => String(i + 1))],
      rows: [
        ["rate, relative to the median", ...rates.map((rate) => (rate / middle).toFixed(2))],
        ["memory after it, MB", ...tenths.map((tenth) => (after(tenth) / 1024).toFixed(0))],
      ],
      note: `When all tasks were done, the table was ${(size.after / size.before).toFixed(2)} times as large as when all were waiting. Autovacuum was left to run by itself. The memory is pg-task's resident memory.`,
    };
  },
};
