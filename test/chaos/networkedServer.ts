import { setTimeout as sleep } from "node:timers/promises";
import { makeReplica, promote } from "../support/replica.js";
import { RestartableServer } from "../support/restartableServer.js";
import { TcpProxy } from "../support/tcpProxy.js";

const settings = {
  max_connections: 200,
  superuser_reserved_connections: 10,
  max_prepared_transactions: 5,
  track_commit_timestamp: "on",
  wal_retrieve_retry_interval: 100,
};

/** A server, and the network to it. */
export class NetworkedServer {
  readonly network: TcpProxy;
  #server: RestartableServer;
  /** The server whose place the present one has taken. */
  #former: RestartableServer | null = null;

  static async start(): Promise<NetworkedServer> {
    const server = await RestartableServer.started(settings);
    return new NetworkedServer(server, await TcpProxy.start(server.port));
  }

  private constructor(server: RestartableServer, network: TcpProxy) {
    this.#server = server;
    this.network = network;
  }

  /** URL of the server itself, bypassing the network. */
  get url(): string {
    return this.#server.url;
  }

  /** Ends the server with a signal and restarts it after a while. */
  async restart(signal: "SIGINT" | "SIGQUIT" | "SIGKILL", downMs = 0): Promise<void> {
    await this.#server.crash(signal);
    await sleep(downMs);
    await this.#server.start(settings);
  }

  /** Suspends the server. What is sent to it in the meantime arrives later. */
  async freeze(ms: number): Promise<void> {
    await this.#server.freezeAll();
    await sleep(ms);
    this.#server.thaw();
  }

  /** Kills the server, and lets a replica take its place that has every commit. */
  async failOver(afterMs: number): Promise<void> {
    const replica = this.#former ?? (await RestartableServer.create());
    await makeReplica(this.#server, replica);
    await replica.start(settings);
    // From its start, each commit waits for the replica.
    await this.#server.crash("SIGKILL");
    await this.#server.start({ ...settings, synchronous_standby_names: "*" });
    await sleep(afterMs);
    await this.#server.crash("SIGKILL");
    await promote(replica);
    this.#former = this.#server;
    this.#server = replica;
    this.network.moveTo(replica.port);
  }
}
