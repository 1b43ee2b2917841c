import { chmod, readFile } from "node:fs/promises";
import { after } from "node:test";
import { startEmbeddedWith, type EmbeddedServer } from "../../src/embedded/embeddedServer.js";
import { createLog } from "../../src/shared/log.js";
import { temporaryFolder } from "./process.js";
import { serverPackage } from "./serverPackage.js";

/** A server that a test may stop, kill and start again on the same data and port. */
export class OwnServer {
  readonly port: number;
  readonly #data: string;
  #server: EmbeddedServer | null = null;
  readonly #frozen: number[] = [];

  private constructor(data: string, port: number) {
    this.#data = data;
    this.port = port;
  }

  /** One that is not started yet; ended after the test file. */
  static async at(port: number): Promise<OwnServer> {
    const folder = await temporaryFolder();
    // A server before 16 has to be able to walk the whole path of its data.
    await chmod(folder, 0o711);
    const server = new OwnServer(folder, port);
    after(() => server.stop());
    return server;
  }

  get url(): string {
    return `postgresql://postgres@127.0.0.1:${this.port}/postgres`;
  }

  get dataDirectory(): string {
    return `${this.#data}/data`;
  }

  /** @param settings more of the server's */
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

  /** Fast: its sessions are told. */
  async stop(): Promise<void> {
    this.thaw();
    await this.#server?.stop();
  }

  /** Stops these of its processes from doing anything; they go on when the server is stopped. */
  freeze(pids: readonly number[]): void {
    for (const pid of pids) process.kill(pid, "SIGSTOP");
    this.#frozen.push(...pids);
  }

  /** Stops the whole server from doing anything: what connects is taken by the kernel, and hears nothing. */
  async freezeAll(): Promise<void> {
    if (this.#server === null) return;
    const { pid } = this.#server;
    const children = await readFile(`/proc/${pid}/task/${pid}/children`, "utf8");
    this.freeze([pid, ...children.split(" ").filter(Boolean).map(Number)]);
  }

  /** Lets all that was stopped go on. */
  thaw(): void {
    for (const pid of this.#frozen.splice(0)) process.kill(pid, "SIGCONT");
  }

  /** Immediate: as after a crash; or killed, its own processes finding out by themselves. */
  async crash(signal: "SIGQUIT" | "SIGKILL" = "SIGQUIT"): Promise<void> {
    if (this.#server === null) return;
    process.kill(this.#server.pid, signal);
    await this.#server.ended;
    // They went with it.
    this.#frozen.splice(0);
  }
}
