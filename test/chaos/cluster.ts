import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { saboteurOption, type Sabotage } from "../support/saboteur.js";
import { serverPackage } from "../support/serverPackage.js";
import { startProcess, type TestProcess } from "../support/process.js";
import { startEmbeddedWith, type EmbeddedServer } from "../../src/embedded/embeddedServer.js";
import { createLog } from "../../src/shared/log.js";
import { Network } from "./network.js";

const log = createLog({ level: "silent", name: "chaos", write: () => {} });

/** Number of pg-task processes: one leader, and the standbys. */
const processCount = 2;

const settings = {
  "pg_task.sleep": 100,
  // All deaths of sessions are injected, so no task may fail because of them.
  "pg_task.crash": 1_000_000,
  "pg_conf.grace": 2000,
  "pg_conf.restart": 1,
  "pg_work.restart": 1,
  "pg_conf.max": 24,
};

/** A server, the network to it, and the pg-task processes that use it. */
export class Cluster {
  readonly #folder: string;
  #server: EmbeddedServer;
  readonly network: Network;
  readonly #processes: TestProcess[] = [];

  static async start(): Promise<Cluster> {
    const folder = await mkdtemp(join(tmpdir(), "pg-task-chaos-"));
    // PostgreSQL before 16 needs search permission on all parent folders of its data.
    await chmod(folder, 0o711);
    const server = await startServer(folder);
    const cluster = new Cluster(folder, server, await Network.to(server.port));
    for (let each = 0; each < processCount; each += 1) await cluster.#startProcess(each);
    await Promise.any(cluster.#processes.map((process) => process.line("ready")));
    return cluster;
  }

  private constructor(folder: string, server: EmbeddedServer, network: Network) {
    this.#folder = folder;
    this.#server = server;
    this.network = network;
  }

  /** URL of the server itself, bypassing the network. */
  get url(): string {
    return this.#server.url;
  }

  get size(): number {
    return processCount;
  }

  /** Ends the server with a signal and restarts it. */
  async restartServer(signal: NodeJS.Signals): Promise<void> {
    process.kill(this.#server.pid, signal);
    await this.#server.ended;
    this.#server = await startServer(this.#folder, this.#server.port);
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

  /** Ends the processes, the network and the server. */
  async stop(): Promise<void> {
    await Promise.all(this.#processes.map((each) => each.end("SIGKILL")));
    this.network.close();
    await this.#server.stop();
    await rm(this.#folder, { recursive: true, force: true, maxRetries: 10 });
  }

  /** The last log lines of each process, for diagnosing a failure. */
  logs(): string {
    return this.#processes
      .map((each) => each.output.stdout.split("\n").slice(-40).join("\n") + each.output.stderr)
      .join("\n--\n");
  }

  async #startProcess(nth: number): Promise<void> {
    const url = new URL(this.#server.url);
    url.port = String(this.network.port);
    const args = ["start"];
    this.#processes[nth] = await startProcess({
      args,
      config: { url: url.href, ...settings },
      env: { NODE_OPTIONS: saboteurOption },
      forked: true,
    });
  }
}

async function startServer(folder: string, port?: number): Promise<EmbeddedServer> {
  return await startEmbeddedWith(
    { installed: await serverPackage() },
    {
      dataDirectory: join(folder, "data"),
      ...(port === undefined ? {} : { port }),
      settings: { fsync: "off", max_connections: 100, track_commit_timestamp: "on" },
      log,
    },
  );
}
