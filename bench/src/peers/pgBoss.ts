import { handling, tell } from "./handling.js";
import type { Addition, Payload } from "./protocol.js";

interface Job {
  readonly id: string;
  readonly data: Payload;
}

/**
 * The part of pg-boss's types that is used here. The original types cannot be imported, because pg-boss is installed
 * only when it is measured.
 */
interface PgBoss {
  start(): Promise<unknown>;
  stop(options: object): Promise<void>;
  on(event: "error", listener: (error: unknown) => void): unknown;
  createQueue(name: string, options: object): Promise<void>;
  work(name: string, options: object, handler: (jobs: readonly Job[]) => Promise<unknown>): Promise<string>;
  insert(name: string, jobs: readonly object[]): Promise<unknown>;
  notifyWorker(id: string): void;
  fetch(name: string, options: object): Promise<readonly Job[]>;
  complete(name: string, id: string, data: object): Promise<unknown>;
}

const name = "pg-boss";
const queue = "run";
const module: { PgBoss: new (options: object) => PgBoss } = await import(name);
const { given, pool, handle } = handling({ wake, add });
const { loops, policy = "standard", ...options }: { readonly loops?: number; readonly policy?: string } = given.setting;
const boss = new module.PgBoss({ connectionString: given.url, max: given.pool });
const ended = new AbortController();
const asleep: (() => void)[] = [];
let workers: string[] = [];

function wake(): void {
  for (const go of asleep.splice(0)) go();
  for (const id of workers) boss.notifyWorker(id);
}

async function add({ first, last, input, group, key }: Addition): Promise<void> {
  const { rows } = await pool.query<{ data: Payload; group: string | null; key: string | null }>(
    `SELECT json_build_object('n', n, 'sql', ${input}) AS data, ${group ?? "NULL"} AS "group", ${key ?? "NULL"} AS key
     FROM generate_series(${first}::integer, ${last}) AS n`,
  );
  await boss.insert(
    queue,
    rows.map(({ data, group: id, key: singletonKey }) => ({
      data,
      ...(id === null ? {} : { group: { id } }),
      ...(singletonKey === null ? {} : { singletonKey }),
    })),
  );
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
await boss.createQueue(queue, { policy });
if (loops === undefined) {
  const id = await boss.work(queue, options, async (jobs) => {
    const results = await Promise.all(
      jobs.map(async ({ id: job, data }) => ({
        id: job,
        status: "completed",
        output: { rows: await handle(data) },
      })),
    );
    return results;
  });
  workers = [id];
} else {
  for (let i = 0; i < loops; i += 1) void loop();
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
