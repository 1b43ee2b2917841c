import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { after } from "node:test";
import { promisify } from "node:util";
import type { LogLine } from "./logLines.js";
import { projectPath } from "./project.js";
import { temporaryFolder } from "./temporaryFolder.js";

const run = promisify(execFile);
const root = projectPath();
const program = join(dirname(createRequire(import.meta.url).resolve("pm2/package.json")), "bin/pm2");

export interface Pm2Process {
  readonly pid: number;
  readonly pm_id: number;
  readonly pm2_env: { readonly status: string; readonly restart_time: number };
}

/** A PM2 for one test file. It has folders of its own, and runs pg-task with the ecosystem file of the package. */
export class Pm2 {
  #home = "";
  #cwd = "";

  /** Creates a PM2. It is killed with all its processes after the file's tests. */
  static async create(config: object): Promise<Pm2> {
    const pm2 = new Pm2();
    // This hook runs before the folders are removed.
    after(() => pm2.command("kill"));
    pm2.#home = await temporaryFolder();
    pm2.#cwd = await temporaryFolder();
    await pm2.configure(config);
    return pm2;
  }

  async command(...args: readonly string[]): Promise<string> {
    return await this.#run(args);
  }

  async #run(
    args: readonly string[],
    env: Readonly<Record<string, string>> = {},
    cwd: string = this.#cwd,
  ): Promise<string> {
    const { stdout } = await run(process.execPath, [program, ...args], {
      cwd,
      env: {
        PATH: process.env["PATH"],
        HOME: this.#home,
        PM2_HOME: this.#home,
        PM2_DISABLE_VERSION_CHECK: "true",
        ...env,
      },
      maxBuffer: 64 << 20,
    });
    return stdout;
  }

  /** Starts pg-task, with these variables in its environment. PM2 remembers them. */
  async start(env: Readonly<Record<string, string>> = {}): Promise<void> {
    await this.#run(["start", join(root, "ecosystem.config.cjs")], env);
  }

  /** Starts what `pm2 save` has saved, from another folder and without the variables, as when the machine starts. */
  async resurrect(): Promise<void> {
    await this.#run(["resurrect"], {}, this.#home);
  }

  async configure(config: object): Promise<void> {
    await writeFile(join(this.#cwd, "pg_task.json"), JSON.stringify(config));
  }

  async processes(): Promise<Pm2Process[]> {
    const text = await this.command("jlist");
    const list: Pm2Process[] = JSON.parse(text.slice(text.indexOf("[")));
    return list;
  }

  /** Returns the log lines of all its processes. Those of each process are in order. */
  async lines(): Promise<LogLine[]> {
    const logs = [0, 1].map((index) => join(this.#home, "logs", `pg-task-out-${index}.log`));
    const texts = await Promise.all(logs.map((file) => readFile(file, "utf8")));
    return texts.flatMap((text) =>
      text
        .split("\n")
        .filter((line) => line.startsWith("{") && line.endsWith("}"))
        .map((line): LogLine => JSON.parse(line)),
    );
  }
}
