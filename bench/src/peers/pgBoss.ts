import { setTimeout as pause } from "node:timers/promises";
import { runOf } from "../requests.js";
import { predecessors } from "../work.js";
import { handling, tell } from "./handling.js";
import type { Addition, Payload } from "./protocol.js";

interface Job {
  readonly id: string;
  readonly data: Payload;
  /** How many tries have failed before this one. */
  readonly retryCount: number;
}

/**
 * The part of pg-boss's types that is used here. The original types cannot be imported, because pg-boss is installed
 * only when it is measured.
 */
interface PgBoss {
  start(): Promise<unknown>;
  stop(options: object): Promise<void>;
  on(event: "error" | "flow", listener: (event: unknown) => void): unknown;
  createQueue(name: string, options: object): Promise<void>;
  work(name: string, options: object, handler: (jobs: readonly Job[]) => Promise<unknown>): Promise<string>;
  send(name: string, data: Payload, options: object): Promise<string | null>;
  insert(name: string, jobs: readonly object[]): Promise<unknown>;
  flow(jobs: readonly object[]): Promise<unknown>;
  resolveFlow(): Promise<void>;
  notifyWorker(id: string): void;
  fetch(name: string, options: object): Promise<readonly Job[]>;
  complete(name: string, id: string, data: object): Promise<unknown>;
}

const name = "pg-boss";
const queue = "run";
const module: { PgBoss: new (options: object) => PgBoss } = await import(name);
const { given, pool, handle } = handling({ wake, add, request });
interface Setting {
  readonly loops?: number;
  readonly policy?: string;
  /** Whether this process runs no jobs. */
  readonly onlyAdds?: true;
  /** Pause between two calls of resolveFlow, in ms. */
  readonly resolveMs?: number;
  /** Whether new jobs notify the workers. */
  readonly notify?: boolean;
}
const { loops, policy = "standard", onlyAdds, resolveMs, notify = false, ...options }: Setting = given.setting;
const boss = new module.PgBoss({ connectionString: given.url, max: given.pool, useListenNotify: notify });
const ended = new AbortController();
const asleep: (() => void)[] = [];
let workers: string[] = [];

function wake(): void {
  for (const go of asleep.splice(0)) go();
  for (const id of workers) boss.notifyWorker(id);
}

async function add({ first, last, input, group, key, tries, shape }: Addition): Promise<void> {
  const { rows } = await pool.query<{ data: Payload; group: string | null; key: string | null }>(
    `SELECT json_build_object('n', n, 'sql', ${input}) AS data, ${group ?? "NULL"} AS "group", ${key ?? "NULL"} AS key
     FROM generate_series(${first}::integer, ${last}) AS n`,
  );
  if (shape !== null) {
    const jobs = rows.map(({ data }) => {
      const after = predecessors(data.n, shape);
      return { ref: String(data.n), name: queue, data: { ...data, after }, dependsOn: refs(after) };
    });
    await boss.flow(jobs);
    return;
  }
  await boss.insert(
    queue,
    rows.map(({ data, group: id, key: singletonKey }) => ({
      ...(tries === null ? { data } : { data: { ...data, tries }, retryLimit: tries - 1, retryDelay: 0 }),
      ...(id === null ? {} : { group: { id } }),
      ...(singletonKey === null ? {} : { singletonKey }),
    })),
  );
}

async function request(key: number): Promise<void> {
  await boss.send(queue, { n: key, sql: runOf(key) }, { singletonKey: String(key) });
}

function refs(range: readonly [number, number] | null): string[] {
  if (range === null) return [];
  const [first, last] = range;
  return Array.from({ length: last - first + 1 }, (_, i) => String(first + i));
}

/** Releases dependent jobs more often than pg-boss does by itself, which is at most once a second. */
async function resolveFlows(everyMs: number): Promise<void> {
  while (!ended.signal.aborted) {
    await boss.resolveFlow();
    await pause(everyMs);
  }
}

/** Runs a job of a batch. @returns its result as `perJobResults` demands it */
async function settle({ id, data, retryCount }: Job): Promise<object> {
  try {
    return { id, status: "completed", output: { rows: await handle(data, { attempt: retryCount + 1 }) } };
  } catch (error) {
    return { id, status: "failed", output: { message: String(error) } };
  }
}

/**
 * Runs jobs one by one with `fetch` and `complete`. A worker of pg-boss is not used for this, because with batch size 1
 * it pauses for at least half a second after each job.
 */
async function loop(): Promise<void> {
  while (!ended.signal.aborted) {
    const [job] = await boss.fetch(queue, { batchSize: 1, ...options });
    if (job === undefined) await new Promise<void>((resolve) => asleep.push(resolve));
    else await boss.complete(queue, job.id, { rows: await handle(job.data) });
  }
}

boss.on("error", (error) => {
  process.stderr.write(`pg-boss: ${String(error)}\n`);
});
await boss.start();
await boss.createQueue(queue, { policy, notify });
if (onlyAdds === true) {
  // Another process runs the jobs.
} else if (loops === undefined) {
  const id = await boss.work(queue, options, async (jobs) => await Promise.all(jobs.map(settle)));
  workers = [id];
} else {
  for (let i = 0; i < loops; i += 1) void loop();
}
if (resolveMs !== undefined) {
  boss.on("flow", wake);
  void resolveFlows(resolveMs);
}
process.once("SIGTERM", () => {
  ended.abort();
  void (async () => {
    await boss.stop({ graceful: false });
    await pool.end();
    process.exit(0);
  })();
});
tell({ type: "ready" });
