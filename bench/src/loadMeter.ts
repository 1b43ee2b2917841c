import { readFile } from "node:fs/promises";
import type { Client } from "pg";
import { one } from "./database.js";
import { childrenOf, coreMsOfThread, coreMsOfThreads } from "./processUsage.js";

/** CPU time, in ms. */
export interface Load {
  /** Of the program, all its threads together. */
  readonly program: number;
  /** Of the server, without its autovacuum workers, which run at random times, and without the connection `client`. */
  readonly server: number;
}

const everyMs = 250;

/**
 * Measures the CPU time of a program and of the server. Threads and server processes that end in the meantime are
 * counted with the last time that was read, at most `everyMs` before their end.
 */
export class LoadMeter {
  readonly #program: number | null;
  readonly #postmaster: number;
  readonly #ignored: number;
  readonly #first = new Map<string, number>();
  readonly #last = new Map<string, number>();
  #reading: Promise<void> = Promise.resolve();
  readonly #timer: NodeJS.Timeout;

  private constructor(program: number | null, postmaster: number, ignored: number) {
    this.#program = program;
    this.#postmaster = postmaster;
    this.#ignored = ignored;
    this.#timer = setInterval(() => this.#readNext(), everyMs);
  }

  /**
   * Begins to measure.
   *
   * @param program pid of the program; null if only the server is to be measured
   * @param client a connection to the server, whose own process is not counted
   */
  static async begin(program: number | null, client: Client): Promise<LoadMeter> {
    const { pid } = await one<{ pid: number }>(client, "SELECT pg_backend_pid() AS pid");
    const meter = new LoadMeter(program, await parentOf(pid), pid);
    await meter.#read(true);
    return meter;
  }

  async end(): Promise<Load> {
    clearInterval(this.#timer);
    this.#readNext();
    await this.#reading;
    const load = { program: 0, server: 0 };
    for (const [key, coreMs] of this.#last) {
      load[key.startsWith("server") ? "server" : "program"] += coreMs - (this.#first.get(key) ?? 0);
    }
    return load;
  }

  #readNext(): void {
    this.#reading = this.#reading.then(async () => await this.#read(false));
  }

  async #read(isFirst: boolean): Promise<void> {
    const keep = (key: string, coreMs: number): void => {
      if (isFirst) this.#first.set(key, coreMs);
      this.#last.set(key, coreMs);
    };
    if (this.#program !== null) {
      for (const [thread, { coreMs }] of await coreMsOfThreads(this.#program)) keep(`thread ${thread}`, coreMs);
    }
    for (const pid of await childrenOf(this.#postmaster)) {
      const coreMs = pid === this.#ignored ? null : await coreMsOfServerProcess(pid);
      if (coreMs !== null) keep(`server ${pid}`, coreMs);
    }
  }
}

async function parentOf(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8");
  // The second field is in parentheses and may contain spaces. The parent is the fourth field.
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
}

/** Returns null for a process that has just ended, and for an autovacuum worker. */
async function coreMsOfServerProcess(pid: number): Promise<number | null> {
  try {
    if ((await readFile(`/proc/${pid}/cmdline`, "utf8")).includes("autovacuum worker")) return null;
    return await coreMsOfThread(pid);
  } catch (error) {
    if (error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ESRCH")) return null;
    throw error;
  }
}
