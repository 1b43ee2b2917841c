import { setTimeout as pause } from "node:timers/promises";
import { one } from "../database.js";
import { startPgTask } from "../pgTaskProcess.js";
import { coreMs, residentKb } from "../processUsage.js";
import type { Bench, Measure } from "./measure.js";

interface Row {
  readonly managers: number;
  readonly residentKb: number;
  readonly connections: number;
  /** CPU time while idle, and how long it was measured, both in ms. */
  readonly coreMs: number;
  readonly watchedMs: number;
}

export interface Idle {
  readonly rows: readonly Row[];
}

const managers = [1, 100] as const;
/** Time for all managers to enter deep sleep, in ms: a base, plus a time for each manager. */
const settleMs = 5000;
const settleMsEach = 150;

async function run(bench: Bench): Promise<Idle> {
  const rows = [];
  for (const many of managers) {
    bench.say(`${many} managers`);
    rows.push(await watch(bench, many));
  }
  return { rows };
}

async function watch({ databases, node, options }: Bench, many: number): Promise<Row> {
  const database = await databases.make();
  const { client, name, url } = database;
  const entries = Array.from({ length: many }, (_, i) => ({
    data: name,
    user: "postgres",
    table: `task_${i}`,
  }));
  const configuration = { "pg_task.idle": 1, "pg_task.sleep": 100, "pg_task.json": entries };
  const program = await startPgTask({ node, url, configuration });
  try {
    await pause(settleMs + many * settleMsEach);
    const [before, start] = [await coreMs(program.pid), performance.now()];
    await pause(options.idle * 1000);
    const spent = (await coreMs(program.pid)) - before;
    const watchedMs = performance.now() - start;
    const { connections } = await one<{ connections: number }>(
      client,
      `SELECT count(*)::integer AS connections FROM pg_stat_activity
       WHERE datname = current_database() AND application_name LIKE 'pg\\_%'`,
    );
    const resident = await residentKb(program.pid);
    return { managers: many, residentKb: resident, connections, coreMs: spent, watchedMs };
  } finally {
    await program.stop();
    await database.drop();
  }
}

export const idle: Measure<Idle> = {
  name: "idle",
  concerns: ({ name }) => name === "pg-task",
  run,
  report: ({ rows }) => ({
    title: "Deep asleep",
    head: ["managers", "memory, MB", "connections", "of one core"],
    rows: rows.map(({ managers: many, residentKb: kb, connections, coreMs: spent, watchedMs }) => [
      String(many),
      (kb / 1024).toFixed(0),
      String(connections),
      `${((spent * 100) / watchedMs).toFixed(3)} %`,
    ]),
    note: `Measured over ${Math.round((rows[0]?.watchedMs ?? 0) / 1000)} seconds without any task to run. The last column is pg-task's CPU time as a fraction of one core.`,
  }),
};
