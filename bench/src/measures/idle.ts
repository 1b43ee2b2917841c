import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { now, serverAhead } from "../clock.js";
import { one, type Database } from "../database.js";
import { startPgTask, type PgTaskProcess } from "../pgTaskProcess.js";
import { childrenOf, coreMs, residentKb } from "../processUsage.js";
import { percentile } from "../statistics.js";
import { until } from "../until.js";
import type { Bench, Measure } from "./measure.js";

interface Row {
  readonly title: string;
  /** Time from the start of the process until it is ready, where it creates the tables and where they exist, in ms. */
  readonly readyMs: { readonly create: number; readonly exist: number };
  readonly residentKb: number;
  readonly connections: number;
  /** CPU time while idle, and how long it was measured, both in ms. */
  readonly coreMs: number;
  readonly watchedMs: number;
}

/** Times from the commit of tasks in sleeping tables to their start, in ms. */
interface Wakes {
  /** One table after another. */
  readonly single: readonly number[];
  /** Until the last task of many tables has started. One transaction inserted all of them. */
  readonly together: { readonly tables: number; readonly ms: number };
}

export interface Idle {
  readonly rows: readonly Row[];
  readonly wakes: Wakes;
}

/** How often CPU time is read to find out whether all tables sleep, and how much of it may have been used, in ms. */
const quiet = { everyMs: 3000, coreMs: 60 };
const limitMs = 600_000;
/** Pause before a table is woken, in which pg-task can prepare for the next one. */
const restMs = 1000;

async function run(bench: Bench): Promise<Idle> {
  const { tables } = bench.options;
  const few = Math.ceil(tables / 10);
  const first = await measureTables(bench, { title: "1 table", databases: 1, tables: 1 });
  const many = await measureTables(bench, { title: `${tables} tables`, databases: 1, tables });
  const apart = await measureTables(bench, { title: `${few} databases, a table in each`, databases: few, tables: 1 });
  return { rows: [first.row, many.row, apart.row], wakes: many.wakes };
}

async function measureTables(
  bench: Bench,
  { title, databases: count, tables }: { title: string; databases: number; tables: number },
): Promise<{ row: Row; wakes: Wakes }> {
  const { databases, node, say } = bench;
  const made = [await databases.make()] as [Database, ...Database[]];
  while (made.length < count) made.push(await databases.make());
  const entries = made.flatMap(({ name }) =>
    Array.from({ length: tables }, (_, i) => ({ data: name, user: "postgres", table: `task_${i}` })),
  );
  const configuration = { "pg_task.idle": 1, "pg_task.sleep": 100, "pg_task.json": entries };
  const start = async (): Promise<{ program: PgTaskProcess; ms: number }> => {
    const since = performance.now();
    const program = await startPgTask({ node, url: made[0].url, configuration });
    return { program, ms: performance.now() - since };
  };
  try {
    say(`${title}: create`);
    const create = await start();
    await create.program.stop();
    const exist = await start();
    try {
      say(`${title}: idle`);
      const watched = await watch(bench, exist.program, made[0]);
      const wakes = await wake(bench, exist.program, made[0], tables);
      return { row: { title, readyMs: { create: create.ms, exist: exist.ms }, ...watched }, wakes };
    } finally {
      await exist.program.stop();
    }
  } finally {
    for (const database of made) await database.drop();
  }
}

async function watch(
  { options }: Bench,
  { pid }: PgTaskProcess,
  { client }: Database,
): Promise<Omit<Row, "title" | "readyMs">> {
  await untilQuiet(pid);
  const [before, start] = [await coreMsOfAll(pid), performance.now()];
  await pause(options.idle * 1000);
  const spent = (await coreMsOfAll(pid)) - before;
  const watchedMs = performance.now() - start;
  const { connections } = await one<{ connections: number }>(
    client,
    `SELECT count(*)::integer AS connections FROM pg_stat_activity
     WHERE backend_type = 'client backend' AND application_name <> 'bench'`,
  );
  return { residentKb: await ofAll(pid, residentKb), connections, coreMs: spent, watchedMs };
}

async function wake(
  { options, say }: Bench,
  { pid }: PgTaskProcess,
  { client }: Database,
  tables: number,
): Promise<Wakes> {
  const single: number[] = [];
  for (let i = 0; i < Math.min(tables, Math.ceil(options.samples / 5)); i += 1) {
    await pause(restMs);
    single.push(await startAfterInsert(client, [i]));
  }
  const many = Math.ceil(tables / 5);
  say(`${many} tables at once`);
  await untilQuiet(pid);
  const woken = Array.from({ length: many }, (_, i) => tables - 1 - i);
  return { single, together: { tables: many, ms: await startAfterInsert(client, woken) } };
}

/** Inserts a task into each of these tables, and returns the time from the commit until all of them have started. */
async function startAfterInsert(client: Database["client"], tables: readonly number[]): Promise<number> {
  const ahead = await serverAhead(client);
  const names = tables.map((table) => `task_${table}`);
  const mark = randomUUID();
  const inserts = names.map(
    (name) =>
      `INSERT INTO ${name} (input, data) VALUES ('SELECT extract(epoch FROM clock_timestamp()) * 1000', '${mark}')`,
  );
  await client.query(inserts.join("; "));
  const committed = now();
  const outputs = names
    .map((name) => `SELECT output FROM ${name} WHERE data = '${mark}' AND state = 'DONE'`)
    .join(" UNION ALL ");
  let last = NaN;
  const isDone = async (): Promise<boolean> => {
    const { rows } = await client.query<{ output: string }>(outputs);
    last = Math.max(...rows.map(({ output }) => Number(output)));
    return rows.length === names.length;
  };
  // Polling many tables takes some of the time that pg-task needs.
  await until(isDone, { everyMs: names.length === 1 ? 20 : 500, limitMs, what: "all tasks are done" });
  return last - ahead - committed;
}

async function untilQuiet(pid: number): Promise<void> {
  const isQuiet = async (): Promise<boolean> => {
    const before = await coreMsOfAll(pid);
    await pause(quiet.everyMs);
    return (await coreMsOfAll(pid)) - before <= quiet.coreMs;
  };
  await until(isQuiet, { everyMs: 0, limitMs, what: "all tables sleep" });
}

/** Returns the sum over a process and the processes that it has started. */
async function ofAll(pid: number, read: (pid: number) => Promise<number>): Promise<number> {
  const values = await Promise.all([pid, ...(await childrenOf(pid))].map(read));
  return values.reduce((sum, value) => sum + value, 0);
}

const coreMsOfAll = async (pid: number): Promise<number> => await ofAll(pid, coreMs);

export const idle: Measure<Idle> = {
  name: "idle",
  concerns: ({ name }) => name === "pg-task",
  run,
  report: ({ rows, wakes: { single, together } }) => ({
    title: "Idle tables",
    head: ["", "ready, s: new tables", "existing tables", "memory, MB", "connections", "of one core"],
    rows: rows.map(({ title, readyMs, residentKb: kb, connections, coreMs: spent, watchedMs }) => [
      title,
      (readyMs.create / 1000).toFixed(1),
      (readyMs.exist / 1000).toFixed(1),
      (kb / 1024).toFixed(0),
      String(connections),
      `${((spent * 100) / watchedMs).toFixed(3)} %`,
    ]),
    note: `“Ready” is the time from the start of the process until it reports that it is ready. Memory, connections and CPU time of pg-task, as a fraction of one core, were measured over ${Math.round((rows[0]?.watchedMs ?? 0) / 1000)} seconds in deep sleep without any task to run. From the commit of a task in a sleeping table to its start: ${percentile(single, 0.5).toFixed(0)} ms (p50), ${percentile(single, 0.95).toFixed(0)} ms (p95) of ${single.length} tables woken one after another, and ${(together.ms / 1000).toFixed(1)} s until the last of ${together.tables} tables has started, into which one transaction inserted.`,
  }),
};
