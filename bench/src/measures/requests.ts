import { Pool } from "pg";
import { one, type Database } from "../database.js";
import { end } from "../childProcess.js";
import type { PeerArguments } from "../peers/protocol.js";
import { startPgTask } from "../pgTaskProcess.js";
import { makeRequests, runOf } from "../requests.js";
import { median } from "../statistics.js";
import { reference } from "../subjects/all.js";
import { hear, startPeer, type Peer } from "../subjects/peer.js";
import { bossShort, bossStately, graphileBest } from "../subjects/peers.js";
import { bestConfiguration } from "../subjects/pgTask.js";
import { until } from "../until.js";
import type { Bench, Measure } from "./measure.js";

interface Run {
  readonly subject: string;
  readonly round: number;
  readonly requests: number;
  readonly ms: number;
  /** How many tasks ran for these requests. */
  readonly tasks: number;
}

export interface RequestRuns {
  readonly runs: readonly Run[];
}

interface Made {
  /** When the last request of each key began, in ms since 1970. */
  readonly last: readonly number[];
  readonly ms: number;
}

interface Requested {
  readonly name: string;
  readonly title: string;
  /** Query for the number of tasks that have not ended. */
  readonly left: string;
  /** Starts the queue, makes the requests, and calls `ended`, before it stops the queue. */
  run(bench: Bench, database: Database, ended: (made: Made) => Promise<void>): Promise<void>;
}

const keys = 100;
const producers = 16;
const limitMs = 600_000;
const plain = { groups: 1, serial: false } as const;

/**
 * Makes the requests from this process, with one statement each, whose parameters are the key and `second`. A null in
 * the column `ok` of its result means that the request has to be repeated.
 */
async function makeBySql(
  { options }: Bench,
  { url }: Database,
  statement: string,
  second: (key: number) => string,
): Promise<Made> {
  const pool = new Pool({ connectionString: url, max: producers });
  try {
    return await makeRequests({ requests: options.tasks, keys, producers }, async (key) => {
      for (;;) {
        const { rows } = await pool.query<{ ok: boolean | null }>({
          name: "request",
          text: statement,
          values: [`key ${key}`, second(key)],
        });
        if (rows[0]?.ok !== null) return;
      }
    });
  } finally {
    await pool.end();
  }
}

const pgTask: Requested = {
  name: "pg-task",
  title: "pg-task, `ON CONFLICT DO NOTHING`",
  left: "SELECT count(*)::integer AS left FROM task WHERE state IN ('PLAN', 'TAKE', 'WORK')",
  run: async (bench, database, ended) => {
    const program = await startPgTask({ node: bench.node, url: database.url, configuration: bestConfiguration });
    try {
      await ended(
        await makeBySql(
          bench,
          database,
          "INSERT INTO task (key, max, input) VALUES ($1, 1000000, $2) ON CONFLICT DO NOTHING",
          runOf,
        ),
      );
    } finally {
      await program.stop();
    }
  },
};

function withPeer(bench: Bench, database: Database, peer: Peer, more: PeerArguments["setting"] = {}) {
  return startPeer(peer, { node: bench.node, url: database.url, setting: { ...peer.setting(plain), ...more } });
}

function payloadOf(key: number): string {
  return JSON.stringify({ n: key, sql: runOf(key) });
}

function graphile(name: string, title: string, mode: string): Requested {
  return {
    name,
    title,
    left: graphileBest.counts,
    run: async (bench, database, ended) => {
      const child = withPeer(bench, database, graphileBest);
      await hear(child, "ready");
      try {
        // As its documentation says, add_job can return null if many add the same key at once.
        const add = `SELECT (job).id IS NOT NULL OR NULL AS ok FROM graphile_worker.add_job(
          'run', $2::json, job_key => $1, job_key_mode => '${mode}') AS job`;
        await ended(await makeBySql(bench, database, add, payloadOf));
      } finally {
        await end(child);
      }
    },
  };
}

function boss(name: string, title: string, peer: Peer): Requested {
  return {
    name,
    title,
    left: peer.counts,
    run: async (bench, database, ended) => {
      const worker = withPeer(bench, database, peer);
      await hear(worker, "ready");
      const producer = withPeer(bench, database, peer, { onlyAdds: true });
      try {
        await hear(producer, "ready");
        const requested = hear(producer, "requested");
        producer.send({ type: "request", requests: bench.options.tasks, keys, producers });
        await ended(await requested);
      } finally {
        await end(producer);
        await end(worker);
      }
    },
  };
}

const all: readonly Requested[] = [
  pgTask,
  graphile(reference, "graphile-worker, `replace`", "replace"),
  graphile("graphile-worker-preserve", "graphile-worker, `preserve_run_at`", "preserve_run_at"),
  boss("pg-boss-short", "pg-boss, policy `short`", bossShort),
  boss("pg-boss-stately", "pg-boss, policy `stately`", bossStately),
];

/** @throws Error if there were more runs than requests, or if the last request of a key was not followed by a run */
async function checkRuns({ client }: Database, { last }: Made, requests: number): Promise<number> {
  const { runs, missed } = await one<{ runs: number; missed: number }>(
    client,
    `SELECT (SELECT count(*) FROM run)::integer AS runs, count(*)::integer AS missed
     FROM unnest($1::float8[]) WITH ORDINALITY AS requested (at, n)
     WHERE NOT EXISTS (SELECT FROM run WHERE key = n - 1 AND run.at >= to_timestamp(requested.at / 1000))`,
    [last],
  );
  if (missed === 0 && runs <= requests) return runs;
  throw new Error(
    `expected at most ${requests} runs, one after the last request of each key, got ${runs}, ${missed} without`,
  );
}

async function measure(bench: Bench, requested: Requested): Promise<Omit<Run, "round">> {
  const database = await bench.databases.make();
  const { client } = database;
  const requests = bench.options.tasks;
  try {
    await client.query("CREATE TABLE run (key integer NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())");
    let result: Omit<Run, "round"> | null = null;
    await requested.run(bench, database, async (made) => {
      const nothingLeft = async (): Promise<boolean> =>
        (await one<{ left: number }>(client, requested.left)).left === 0;
      await until(nothingLeft, { everyMs: 20, limitMs, what: "all requested tasks have ended" });
      const tasks = await checkRuns(database, made, requests);
      result = { subject: requested.name, requests, ms: made.ms, tasks };
    });
    if (result === null) throw new Error("expected the requests to be made");
    return result;
  } catch (error) {
    throw new Error(`${requested.name}: ${String(error)}`, { cause: error });
  } finally {
    await database.drop();
  }
}

async function run(bench: Bench): Promise<RequestRuns> {
  const programs = bench.subjects.map(({ name }) => name.replace("-best", ""));
  const asked = all.filter(({ name }) => programs.some((program) => name.startsWith(program)));
  const runs: Run[] = [];
  for (let round = 1; round <= bench.options.rounds; round += 1) {
    for (const requested of asked) {
      const result = await measure(bench, requested);
      runs.push({ ...result, round });
      const rate = Math.round((result.requests * 1000) / result.ms);
      bench.say(`requests, round ${round}, ${requested.title}: ${rate}/s, ${result.tasks} tasks`);
    }
  }
  return { runs };
}

const rate = ({ requests, ms }: Run): number => (requests * 1000) / ms;

export const requests: Measure<RequestRuns> = {
  name: "requests",
  concerns: ({ name }) => ["pg-task", reference, "pg-boss-best"].includes(name),
  run,
  report: ({ runs }) => {
    const first = runs[0]?.subject;
    const to = runs.some(({ subject }) => subject === reference) ? reference : first;
    const there = all.filter(({ name }) => runs.some(({ subject }) => subject === name));
    const title = there.find(({ name }) => name === to)?.title;
    return {
      title: "Many requests for few keys",
      head: ["", "requests/s, relative", "requests for each task that ran"],
      rows: there.map(({ name, title: row }) => {
        const own = runs.filter(({ subject }) => subject === name);
        const ratios = own.flatMap((each) => {
          const other = runs.find(({ subject, round }) => subject === to && round === each.round);
          return other === undefined ? [] : [rate(each) / rate(other)];
        });
        return [row, median(ratios).toFixed(2), median(own.map((each) => each.requests / each.tasks)).toFixed(1)];
      }),
      note: `While the queue runs, ${producers} producers request the task of one of ${keys} keys, each in a transaction of its own. 1.00 is the rate of “${title}” in the same round, ${Math.round(median(runs.filter(({ subject }) => subject === to).map(rate))).toLocaleString("en")} requests/s. Each figure is the median over all rounds. The benchmark verified that a task of each key began after the last request for it.`,
    };
  },
};
