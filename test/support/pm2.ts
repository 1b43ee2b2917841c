import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { after } from "node:test";
import { promisify } from "node:util";
import { temporaryFolder, type LogLine } from "./process.js";
import { projectPath } from "./project.js";

const run = promisify(execFile);
const root = projectPath();
const program = join(
  dirname(createRequire(import.meta.url).resolve("pm2/package.json")),
  "bin/pm2",
);

/** What PM2 says of one of its processes. */
export interface Pm2Process {
  readonly pid: number;
  readonly pm_id: number;
  readonly pm2_env: { readonly status: string; readonly restart_time: number };
}

/** A PM2 of a test file's own, in folders of its own, that runs pg-task by the file that ships. */
export class Pm2 {
  #home = "";
  #cwd = "";

  /** Ended with all it runs after the test file, however that went. */
  static async create(config: object): Promise<Pm2> {
    const pm2 = new Pm2();
    // Before the folders are removed.
    after(() => pm2.do("kill"));
    pm2.#home = await temporaryFolder();
    pm2.#cwd = await temporaryFolder();
    await pm2.configure(config);
    return pm2;
  }

  /** Runs a command of PM2's; what it printed. */
  async do(...args: readonly string[]): Promise<string> {
    const { stdout } = await run(process.execPath, [program, ...args], {
      cwd: this.#cwd,
      env: {
        PATH: process.env["PATH"],
        HOME: this.#home,
        PM2_HOME: this.#home,
        PM2_DISABLE_VERSION_CHECK: "true",
      },
      maxBuffer: 64 << 20,
    });
    return stdout;
  }

  async start(): Promise<void> {
    await this.do("start", join(root, "ecosystem.config.cjs"));
  }

  async configure(config: object): Promise<void> {
    await writeFile(join(this.#cwd, "pg_task.json"), JSON.stringify(config));
  }

  async processes(): Promise<Pm2Process[]> {
    const text = await this.do("jlist");
    const list: Pm2Process[] = JSON.parse(text.slice(text.indexOf("[")));
    return list;
  }

  /** What all its processes have logged, each one's in order. */
  async lines(): Promise<LogLine[]> {
    const logs = [0, 1].map((place) => join(this.#home, "logs", `pg-task-out-${place}.log`));
    const texts = await Promise.all(logs.map((file) => readFile(file, "utf8")));
    return texts.flatMap((text) =>
      text
        .split("\n")
        .filter((line) => line.startsWith("{") && line.endsWith("}"))
        .map((line): LogLine => JSON.parse(line)),
    );
  }
}
