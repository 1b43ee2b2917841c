import { chmod, readFile } from "node:fs/promises";
import { after } from "node:test";
import { startEmbeddedWith, type EmbeddedServer } from "../../src/embedded/embeddedServer.js";
import { createLog } from "../../src/shared/log.js";
import { serverPackage } from "./serverPackage.js";
import { temporaryFolder } from "./temporaryFolder.js";

/** A server that a test may stop, kill and restart with the same data and port. */
export class RestartableServer {
  readonly port: number;
  readonly #data: string;
  #server: EmbeddedServer | null = null;
  readonly #frozen: number[] = [];

  private constructor(data: string, port: number) {
    this.#data = data;
    this.port = port;
  }

  /** A server that is not started yet; stopped after the test file. */
  static async create(port: number): Promise<RestartableServer> {
    const folder = await temporaryFolder();
    // A server before 16 needs search permission on the whole path of its data.
    await chmod(folder, 0o711);
    const server = new RestartableServer(folder, port);
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
      { installed: await serverPackage() },
      {
        dataDirectory: this.dataDirectory,
        port: this.port,
        settings: { fsync: "off", ...settings },
        log: createLog({ level: "silent", name: "test", write: () => {} }),
      },
    );
  }

  /** A fast shutdown. */
  async stop(): Promise<void> {
    this.thaw();
    await this.#server?.stop();
  }

  /** Suspends these of its processes; they resume when the server is stopped. */
  freeze(pids: readonly number[]): void {
    for (const pid of pids) process.kill(pid, "SIGSTOP");
    this.#frozen.push(...pids);
  }

  /** Suspends the whole server: the kernel accepts connections, but nothing answers. */
  async freezeAll(): Promise<void> {
    if (this.#server === null) return;
    const { pid } = this.#server;
    const children = await readFile(`/proc/${pid}/task/${pid}/children`, "utf8");
    this.freeze([pid, ...children.split(" ").filter(Boolean).map(Number)]);
  }

  /** Resumes all suspended processes. */
  thaw(): void {
    for (const pid of this.#frozen.splice(0)) process.kill(pid, "SIGCONT");
  }

  /** An immediate shutdown, as after a crash; or a kill, which its backends notice on their own. */
  async crash(signal: "SIGQUIT" | "SIGKILL" = "SIGQUIT"): Promise<void> {
    if (this.#server === null) return;
    process.kill(this.#server.pid, signal);
    await this.#server.ended;
    // They ended with it.
    this.#frozen.splice(0);
  }
}
