import assert from "node:assert/strict";
import { spawn, type ChildProcessByStdio } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { after } from "node:test";
import { bin } from "./project.js";

/** One line of pg-task's log. */
export interface LogLine {
  readonly level: string;
  readonly msg: string;
  readonly name: string;
  readonly [key: string]: unknown;
}

/**
 * The real pg-task, as a process of its own in a folder of its own. Made before the database it
 * works on, so that it is ended before that one is dropped:
 *
 *     const pgTask = new PgTask();
 *     const database = await createDatabase();
 *     await pgTask.start({ url: database.url });
 */
export class PgTask {
  /** What it has logged so far, in order. */
  readonly lines: LogLine[] = [];
  readonly #watchers = new Set<() => void>();
  #child: ChildProcessByStdio<null, Readable, Readable> | null = null;
  #exit: Promise<{ code: number | null; signal: string | null }> | null = null;
  #ended: string | null = null;
  #complaints = "";

  constructor() {
    after(() => this.stop());
  }

  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error("pg-task has not been started");
    return pid;
  }

  /** Starts it with this as its configuration file; resolves when it is ready. */
  async start(configuration: Readonly<Record<string, unknown>>): Promise<void> {
    const folder = await mkdtemp(join(tmpdir(), "pg-task-process-"));
    const file = join(folder, "pg_task.json");
    await writeFile(file, JSON.stringify(configuration));
    const child = spawn(process.execPath, [bin, "start", "--config", file], {
      cwd: folder,
      env: ownEnvironment(),
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#child = child;
    this.#ended = null;
    this.#exit = new Promise((resolve) => {
      child.once("close", (code, signal) => {
        this.#ended = `pg-task ended with ${signal ?? `code ${code}`}: ${this.#complaints}`;
        this.#look();
        resolve({ code, signal });
      });
    });
    void this.#exit.then(() => rm(folder, { recursive: true, force: true }));
    child.stderr.on("data", (data) => (this.#complaints += String(data)));
    createInterface({ input: child.stdout }).on("line", (line) => {
      const parsed: LogLine = JSON.parse(line);
      this.lines.push(parsed);
      this.#look();
    });
    await this.logged((line) => line.msg === "ready", this.lines.length);
  }

  /** The first line that fits, at or after place `from`, once it has been logged. */
  async logged(fits: (line: LogLine) => boolean, from = 0): Promise<LogLine> {
    return await new Promise((resolve, reject) => {
      const watcher = (): void => {
        const line = this.lines.slice(from).find(fits);
        if (line === undefined && this.#ended === null) return;
        this.#watchers.delete(watcher);
        if (line === undefined) reject(new Error(this.#ended ?? ""));
        else resolve(line);
      };
      this.#watchers.add(watcher);
      watcher();
    });
  }

  /** Asks it to stop, as a service manager would, and expects that it does so in good order. */
  async stop(): Promise<void> {
    if (this.#exit === null) return;
    this.#child?.kill("SIGTERM");
    const exit = await this.#exit;
    this.#exit = null;
    assert.deepEqual(exit, { code: 0, signal: null }, this.#complaints);
    assert.equal(this.#complaints, "");
  }

  #look(): void {
    for (const watcher of this.#watchers) watcher();
  }
}

/** Connection variables of whoever runs the tests are none of its business. */
function ownEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !name.startsWith("PG") && name !== "DATABASE_URL" && name !== "NODE_OPTIONS",
    ),
  );
}
