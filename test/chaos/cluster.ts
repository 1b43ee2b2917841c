import { type Sabotage } from "../support/saboteur.js";
import { startProcess, type TestProcess } from "../support/process.js";
import { RestartableServer } from "../support/restartableServer.js";
import { TcpProxy } from "../support/tcpProxy.js";

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

const serverSettings = { max_connections: 100, track_commit_timestamp: "on" };

/** A server, the network to it, and the pg-task processes that use it. */
export class Cluster {
  readonly #server: RestartableServer;
  readonly network: TcpProxy;
  readonly #processes: TestProcess[] = [];

  static async start(): Promise<Cluster> {
    const server = await RestartableServer.started(serverSettings);
    const cluster = new Cluster(server, await TcpProxy.start(server.port));
    for (let each = 0; each < processCount; each += 1) await cluster.#startProcess(each);
    await Promise.any(cluster.#processes.map((process) => process.line("ready")));
    return cluster;
  }

  private constructor(server: RestartableServer, network: TcpProxy) {
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
  async restartServer(signal: "SIGINT" | "SIGQUIT" | "SIGKILL"): Promise<void> {
    await this.#server.crash(signal);
    await this.#server.start(serverSettings);
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
    const url = new URL(this.#server.url);
    url.port = String(this.network.port);
    this.#processes[nth] = await startProcess({ config: { url: url.href, ...settings }, sabotaged: true });
  }
}
