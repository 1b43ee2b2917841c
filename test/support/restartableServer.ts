import { chmod, readFile } from "node:fs/promises";
import { after } from "node:test";
import { startEmbeddedWith, type EmbeddedServer } from "../../src/embedded/embeddedServer.js";
import type { InstalledPackage } from "../../src/embedded/binaries/installedPackage.js";
import { createLog } from "../../src/shared/log.js";
import { serverPackage } from "./serverPackage.js";
import { dataRoot, temporaryFolder } from "./temporaryFolder.js";
import { freePort } from "../../src/embedded/port.js";

/** A server that a test may stop, kill and restart with the same data and port. */
export class RestartableServer {
  readonly port: number;
  readonly #data: string;
  readonly #installed: InstalledPackage | null;
  #server: EmbeddedServer | null = null;
  readonly #frozen: number[] = [];

  private constructor(data: string, port: number, installed: InstalledPackage | null) {
    this.#data = data;
    this.port = port;
    this.#installed = installed;
  }

  /**
   * Starts a server on a free port. It is stopped after the file's tests.
   *
   * @param installed another PostgreSQL than the one to test
   */
  static async started(
    settings?: Readonly<Record<string, string | number>>,
    installed: InstalledPackage | null = null,
  ): Promise<RestartableServer> {
    const server = await RestartableServer.create(undefined, installed);
    await server.start(settings);
    return server;
  }

  /** Returns a server that is not started yet. It is stopped after the file's tests. */
  static async create(given?: number, installed: InstalledPackage | null = null): Promise<RestartableServer> {
    const port = given ?? (await freePort());
    const folder = await temporaryFolder(dataRoot());
    // PostgreSQL before 16 needs search permission on all parent folders of its data.
    await chmod(folder, 0o711);
    const server = new RestartableServer(folder, port, installed);
    after(() => server.stop());
    return server;
  }

  get url(): string {
    return `postgresql://postgres@127.0.0.1:${this.port}/postgres`;
  }

  get dataDirectory(): string {
    return `${this.#data}/data`;
  }

  /** @param settings additional server settings */
  async start(settings: Readonly<Record<string, string | number>> = {}): Promise<void> {
    this.#server = await startEmbeddedWith(
      { installed: this.#installed ?? (await serverPackage()) },
      {
        dataDirectory: this.dataDirectory,
        port: this.port,
        settings: { fsync: "off", ...settings },
        log: createLog({ level: "silent", name: "test", write: () => {} }),
      },
    );
  }

  async stop(): Promise<void> {
    this.thaw();
    await this.#server?.stop();
  }

  /** Suspends these processes of the server. They are resumed when the server is stopped. */
  freeze(pids: readonly number[]): void {
    for (const pid of pids) process.kill(pid, "SIGSTOP");
    this.#frozen.push(...pids);
  }

  /** Suspends all processes of the server. The kernel still accepts connections, but nothing answers. */
  async freezeAll(): Promise<void> {
    if (this.#server === null) return;
    const { pid } = this.#server;
    const children = await readFile(`/proc/${pid}/task/${pid}/children`, "utf8");
    this.freeze([pid, ...children.split(" ").filter(Boolean).map(Number)]);
  }

  thaw(): void {
    for (const pid of this.#frozen.splice(0)) process.kill(pid, "SIGCONT");
  }

  /**
   * Makes the server crash: shuts it down in immediate mode (SIGQUIT), or kills its main process (SIGKILL), which its
   * backends then notice themselves. SIGINT shuts it down in fast mode.
   */
  async crash(signal: "SIGQUIT" | "SIGKILL" | "SIGINT" = "SIGQUIT"): Promise<void> {
    if (this.#server === null) return;
    process.kill(this.#server.pid, signal);
    await this.#server.ended;
    // The suspended processes have ended with the server.
    this.#frozen.splice(0);
  }
}
