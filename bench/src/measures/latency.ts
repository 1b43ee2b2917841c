import type { ChildProcess } from "node:child_process";
import { setTimeout as pause } from "node:timers/promises";
import { end } from "../childProcess.js";
import { now, serverAhead } from "../clock.js";
import { one, type Database } from "../database.js";
import { isFromPeer } from "../peers/protocol.js";
import { startPgTask, type Configuration } from "../pgTaskProcess.js";
import { percentile } from "../statistics.js";
import { hear, startPeer, type Peer } from "../subjects/peer.js";
import { graphileBest, graphileDefault } from "../subjects/peers.js";
import { bestConfiguration } from "../subjects/pgTask.js";
import { until } from "../until.js";
import type { Bench, Measure } from "./measure.js";

/** Latencies of single tasks, in ms, from the moment when the producer receives the answer to its commit. */
interface Samples {
  readonly name: string;
  /** Times until the task's SQL or the peer's handler runs. */
  readonly start: number[];
  /** Times until a connection that polls the task's row finds the task done. */
  readonly done: number[];
}

export interface Latency {
  readonly samples: readonly Samples[];
  /** How far the server's clock was ahead of the benchmark's, in ms. The samples have been corrected by this time. */
  readonly ahead: number;
}

interface Line {
  readonly name: string;
  start(): Promise<number>;
  done(): Promise<number>;
  /** Waits until the next task may be inserted. */
  rest(): Promise<void>;
  end(): Promise<void>;
}

const limitMs = 60_000;

async function run(bench: Bench): Promise<Latency> {
  const { options, subjects } = bench;
  const wants = (name: string): boolean => subjects.some((subject) => subject.name === name);
  const lines: Line[] = [];
  const databases: Database[] = [];
  const make = async (): Promise<Database> => {
    const database = await bench.databases.make();
    databases.push(database);
    return database;
  };
  const clocks = await make();
  const ahead = await serverAhead(clocks.client);
  const own = async (name: string, configuration: Configuration, asleep: boolean): Promise<void> => {
    lines.push(await pgTaskLine(bench, await make(), { name, configuration, asleep, ahead }));
  };
  const peer = async (name: string, setting: Peer): Promise<void> => {
    lines.push(await graphileLine(bench, await make(), name, setting));
  };
  if (wants("pg-task")) await own("pg-task, best setting", bestConfiguration, false);
  if (wants("graphile-worker-best")) await peer("graphile-worker, best setting", graphileBest);
  if (wants("pg-task-default")) await own("pg-task, default settings", {}, false);
  if (wants("graphile-worker-default")) {
    await peer("graphile-worker, default settings", graphileDefault);
  }
  if (wants("pg-task-default")) await own("pg-task, out of deep sleep", deepSleep, true);
  const samples = lines.map(({ name }) => ({ name, start: [] as number[], done: [] as number[] }));
  try {
    for (let round = 1; round <= options.rounds; round += 1) {
      for (const [i, line] of lines.entries()) {
        const many = Math.ceil(options.samples / options.rounds / (line.name.includes("sleep") ? 20 : 1));
        await line.rest();
        await line.start();
        for (let n = 0; n < many; n += 1) {
          await line.rest();
          samples[i]?.start.push(await line.start());
          await line.rest();
          samples[i]?.done.push(await line.done());
        }
        bench.say(`round ${round}, ${line.name}`);
      }
    }
  } finally {
    for (const line of lines) await line.end();
    for (const database of databases) await database.drop();
  }
  return { samples, ahead };
}

/** Settings with which pg-task enters deep sleep as soon as there is nothing to do. */
const deepSleep: Configuration = { "pg_task.idle": 1, "pg_task.sleep": 50 };

async function shortRest(): Promise<void> {
  await pause(5 + Math.random() * 15);
}

async function pgTaskLine(
  { node }: Bench,
  { client, url }: Database,
  options: { name: string; configuration: Configuration; asleep: boolean; ahead: number },
): Promise<Line> {
  const { name, configuration, asleep, ahead } = options;
  const program = await startPgTask({ node, url, configuration });
  const insert = async (input: string): Promise<{ id: string; committed: number }> => {
    const { id } = await one<{ id: string }>(client, "INSERT INTO task (input) VALUES ($1) RETURNING id", [input]);
    return { id, committed: now() };
  };
  const state = { name: "state", text: "SELECT output FROM task WHERE id = $1 AND state = 'DONE'" };
  const output = async (id: string, everyMs: number): Promise<string> => {
    let found: string | undefined;
    const isDone = async (): Promise<boolean> => {
      const { rows } = await client.query<{ output: string }>({ ...state, values: [id] });
      found = rows[0]?.output;
      return found !== undefined;
    };
    if (everyMs > 0) await until(isDone, { everyMs, limitMs, what: "a task is done" });
    else while (!(await isDone()));
    return found ?? "";
  };
  return {
    name,
    start: async () => {
      const input = "SELECT extract(epoch FROM clock_timestamp()) * 1000";
      const { id, committed } = await insert(input);
      return Number(await output(id, 10)) - ahead - committed;
    },
    done: async () => {
      const { id, committed } = await insert("SELECT 1");
      await output(id, 0);
      return now() - committed;
    },
    rest: async () => {
      await shortRest();
      if (!asleep) return;
      await until(
        async () => {
          const { sessions } = await one<{ sessions: number }>(
            client,
            `SELECT count(*)::integer AS sessions FROM pg_stat_activity
             WHERE datname = current_database() AND application_name LIKE 'pg\\_task %'`,
          );
          return sessions === 0;
        },
        { everyMs: 50, limitMs, what: "pg-task is asleep" },
      );
      await pause(300);
    },
    end: async () => await program.stop(),
  };
}

async function graphileLine({ node }: Bench, { client, url }: Database, name: string, peer: Peer): Promise<Line> {
  const child = startPeer(peer, { node, url, setting: peer.setting({ groups: 1, serial: false }) });
  await hear(child, "ready");
  let n = 0;
  const add = async (payload: object): Promise<{ id: string; committed: number }> => {
    const { id } = await one<{ id: string }>(client, "SELECT id FROM graphile_worker.add_job('run', $1::json)", [
      JSON.stringify(payload),
    ]);
    return { id, committed: now() };
  };
  const left = { name: "left", text: "SELECT FROM graphile_worker._private_jobs WHERE id = $1" };
  return {
    name,
    start: async () => {
      n += 1;
      const started = startOf(child, n);
      const { committed } = await add({ n, sql: "", mark: true });
      return (await started) - committed;
    },
    done: async () => {
      const { id, committed } = await add({ n: 0, sql: "SELECT 1" });
      while ((await client.query({ ...left, values: [id] })).rows.length > 0);
      return now() - committed;
    },
    rest: shortRest,
    end: async () => await end(child),
  };
}

async function startOf(child: ChildProcess, n: number): Promise<number> {
  return await new Promise((resolve) => {
    const listen = (received: unknown): void => {
      if (!isFromPeer(received) || received.type !== "started" || received.n !== n) return;
      child.off("message", listen);
      resolve(received.at);
    };
    child.on("message", listen);
  });
}

function ms(values: readonly number[], part: number): string {
  return percentile(values, part).toFixed(2);
}

export const latency: Measure<Latency> = {
  name: "latency",
  concerns: ({ name }) => name.startsWith("pg-task") || name.startsWith("graphile-worker"),
  run,
  report: ({ samples }) => {
    return {
      title: "Latency of single tasks, in ms",
      head: ["", "start, p50", "start, p99", "seen as done, p50", "seen as done, p99", "tasks"],
      rows: samples.map(({ name, start, done }) => [
        name,
        ms(start, 0.5),
        ms(start, 0.99),
        ms(done, 0.5),
        ms(done, 0.99),
        String(start.length + done.length),
      ]),
      note: "All times are counted from the moment when the producer receives the answer to its commit. For pg-task, the start is the time that the task's own SQL reads from the server's clock. For graphile-worker, it is the time at the first line of the handler, before any SQL. A task is “seen as done” when a connection that queries the task's row without a pause finds it done. Half of the tasks measure the start, and the other half measure the end.",
    };
  },
};
