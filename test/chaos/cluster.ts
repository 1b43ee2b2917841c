import { setTimeout as sleep } from "node:timers/promises";
import { type Sabotage } from "../support/saboteur.js";
import { startProcess, type TestProcess } from "../support/process.js";
import { NetworkedServer } from "./networkedServer.js";
import { asleepAfterMs, sleepers } from "./sleepers.js";

/** The names of the clusters of the processes. The second cluster waits for a table that the first one serves. */
const clusters = ["pg_task", "pg_task", "other"];

const settings = {
  "pg_task.sleep": 100,
  // All deaths of sessions are injected, so no task may fail because of them.
  "pg_task.crash": 1_000_000,
  // Nothing may wait for it.
  "pg_task.reset": "1 day",
  "pg_task.ceiling": "1 second",
  "pg_conf.grace": 2000,
  "pg_conf.restart": 1,
  "pg_work.restart": 1,
  "pg_conf.max": 24,
};

interface ClusterOptions {
  readonly asleep: boolean;
  readonly remote: boolean;
  readonly shares: boolean;
  readonly users: boolean;
}

/** Groups 1, 10 and 11 are one share, and each of the others is one. */
const dividing = { "pg_task.share": "1", "pg_task.weights": { "group ": 2 } };

/** A server, perhaps a second one for remote tasks, and the pg-task processes that use them. */
export class Cluster {
  readonly first: NetworkedServer;
  readonly #second: NetworkedServer | null;
  readonly #processes: TestProcess[] = [];
  readonly #more: Readonly<Record<string, unknown>>;

  static async start(options: ClusterOptions): Promise<Cluster> {
    const first = await NetworkedServer.start();
    const cluster = new Cluster(first, options.remote ? await NetworkedServer.start() : null, options);
    await cluster.#startProcess(0);
    await cluster.#processes[0]?.line("ready");
    for (let each = 1; each < clusters.length; each += 1) await cluster.#startProcess(each);
    return cluster;
  }

  private constructor(
    first: NetworkedServer,
    second: NetworkedServer | null,
    { asleep, shares, users }: Omit<ClusterOptions, "remote">,
  ) {
    this.first = first;
    this.#second = second;
    const entries = [{ table: "task", users }, ...(asleep ? sleepers.map((table) => ({ table })) : [])];
    const idle = asleep ? { "pg_task.idle": asleepAfterMs / settings["pg_task.sleep"] } : {};
    this.#more = { ...idle, ...(shares ? dividing : {}), "pg_task.json": entries };
  }

  get url(): string {
    return this.first.url;
  }

  /** The server on which remote tasks run. */
  get second(): NetworkedServer {
    if (this.#second === null) throw new Error("no second server");
    return this.#second;
  }

  get size(): number {
    return clusters.length;
  }

  /** Ends a pg-task process with a signal and starts another one in its place. */
  async restartProcess(nth: number, signal: NodeJS.Signals): Promise<void> {
    await this.#processes[nth]?.end(signal);
    await this.#startProcess(nth);
  }

  /** Makes threads of a pg-task process fail. A standby has no such threads. */
  sabotage(nth: number, order: Sabotage): void {
    this.#processes[nth]?.child.send({ sabotage: order });
  }

  /** Suspends a process. */
  async freezeProcess(nth: number, ms: number): Promise<void> {
    this.#processes[nth]?.child.kill("SIGSTOP");
    await sleep(ms);
    this.#processes[nth]?.child.kill("SIGCONT");
  }

  /** Ends the processes. */
  async stop(): Promise<void> {
    await Promise.all(this.#processes.map((each) => each.end("SIGKILL")));
  }

  /** The last log lines of each process, for diagnosing a failure. */
  logs(): string {
    return this.#processes
      .map((each) => each.output.stdout.split("\n").slice(-40).join("\n") + each.output.stderr)
      .join("\n--\n");
  }

  async #startProcess(nth: number): Promise<void> {
    const url = new URL(this.url);
    url.port = String(this.first.network.port);
    this.#processes[nth] = await startProcess({
      config: { url: url.href, "pg_conf.name": clusters[nth], ...settings, ...this.#more },
      sabotaged: true,
    });
  }
}
