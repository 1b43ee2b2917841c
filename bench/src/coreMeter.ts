import type { Client } from "pg";
import type { Database } from "./database.js";
import { coreMsOfThread, coreMsOfThreads } from "./processUsage.js";
import type { Meter } from "./subjects/subject.js";

/** CPU time by component, in ms. */
export type Spent = Readonly<Record<string, number>>;

type Readings = ReadonlyMap<string, { readonly part: string; readonly coreMs: number }>;

/** Names of Node's internal threads: garbage collection, compilation, libuv's pool. */
const nodesOwn = new Set(["V8Worker", "DelayedTaskSche", "SignalInspector", "libuv-worker"]);

/**
 * Measures the CPU time of each thread and of each server process. Reads it from /proc, and only when the measured part
 * begins and when it ends.
 */
export class CoreMeter implements Meter {
  #pid = 0;
  #client: Client | null = null;
  #before: Readings = new Map();
  #after: Readings = new Map();

  async begin(pid: number, { client }: Database): Promise<void> {
    this.#pid = pid;
    this.#client = client;
    this.#before = await this.#read();
  }

  async end(): Promise<void> {
    this.#after = await this.#read();
  }

  get spent(): Spent {
    const sums: Record<string, number> = {};
    for (const [key, { part, coreMs }] of this.#after) {
      sums[part] = (sums[part] ?? 0) + coreMs - (this.#before.get(key)?.coreMs ?? 0);
    }
    return sums;
  }

  async #read(): Promise<Readings> {
    const readings = new Map<string, { part: string; coreMs: number }>();
    for (const [thread, { name, coreMs }] of await coreMsOfThreads(this.#pid)) {
      readings.set(`thread ${thread}`, { part: partOfThread(this.#pid, thread, name), coreMs });
    }
    for (const { pid, part } of await serverProcesses(this.#client)) {
      readings.set(`server ${pid}`, { part, coreMs: await coreMsOfThread(pid) });
    }
    return readings;
  }
}

function partOfThread(pid: number, thread: number, name: string): string {
  if (thread === pid) return "main thread";
  if (nodesOwn.has(name)) return "Node's own threads";
  // Node before 24 gives all threads the same name.
  if (name === "node") return "other threads";
  return name === "WorkerThread" ? "executor threads" : "manager thread";
}

interface ServerProcess {
  readonly pid: number;
  readonly part: string;
}

async function serverProcesses(client: Client | null): Promise<readonly ServerProcess[]> {
  const { rows } = (await client?.query<ServerProcess>(
    `SELECT pid, CASE
       WHEN backend_type <> 'client backend' THEN 'server: writers and the like'
       WHEN application_name LIKE 'pg\\_work %' THEN 'server: the manager''s connection'
       ELSE 'server: other connections' END AS part
     FROM pg_stat_activity WHERE pid <> pg_backend_pid()
       AND (datname = current_database() OR backend_type <> 'client backend')
       -- They end at any time, even before their time is read.
       AND backend_type <> 'autovacuum worker'`,
  )) ?? { rows: [] };
  return rows;
}
