import { one, type Database } from "../database.js";
import { wholeSets, type Work } from "../work.js";
import type { Surroundings, Timing } from "./subject.js";

/** A running queue on an empty database. */
export interface Queue {
  /** The pid of the process that runs the tasks. */
  readonly pid: number;
  /** Adds the tasks with these numbers, in one transaction. */
  add(work: Work, first: number, last: number): Promise<void>;
  /** Resolves when all `tasks` tasks are seen as done. */
  done(tasks: number): Promise<void>;
  /** @throws Error if a task did not end as it has to, was repeated, or started too early */
  check(work: Work, tasks: number): Promise<void>;
  stop(): Promise<void>;
}

/** How many tasks warm up the code: `warmUpShare` of the measured tasks, but at most `mostWarmUp`. */
const warmUpShare = 0.25;
const mostWarmUp = 5000;

/** Creates the table `sink`, into which the tasks of some kinds of work insert rows. */
export async function makeSink({ client }: Database): Promise<void> {
  await client.query("CREATE TABLE sink (n integer NOT NULL)");
}

/**
 * Warms up the queue, then measures how long it takes for `tasks` tasks. These tasks are added in one transaction, so
 * none of them runs before all are added.
 */
export async function drain(
  queue: Queue,
  { database, meter }: Surroundings,
  work: Work,
  asked: number,
): Promise<Timing> {
  const tasks = wholeSets(work, asked);
  try {
    const warmUp = wholeSets(work, Math.min(mostWarmUp, Math.ceil(tasks * warmUpShare)));
    await queue.add(work, 1, warmUp);
    await queue.done(warmUp);
    const all = warmUp + tasks;
    await queue.add(work, warmUp + 1, all);
    await meter?.begin(queue.pid, database);
    const start = performance.now();
    await queue.done(all);
    const ms = performance.now() - start;
    await meter?.end();
    await queue.check(work, all);
    if (work.writes) await checkSink(database, all);
    return { tasks, ms };
  } finally {
    await queue.stop();
  }
}

async function checkSink({ client }: Database, tasks: number): Promise<void> {
  const { rows, distinct } = await one<{ rows: number; distinct: number }>(
    client,
    "SELECT count(*)::integer AS rows, count(DISTINCT n)::integer AS distinct FROM sink",
  );
  if (rows === tasks && distinct === tasks) return;
  throw new Error(`expected ${tasks} rows in the sink, each once, got ${rows}, ${distinct} different`);
}
