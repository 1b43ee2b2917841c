import assert from "node:assert/strict";
import { spawn, type ChildProcessByStdio } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { after } from "node:test";
import type { LogLine } from "./process.js";
import { bin } from "./project.js";

/**
 * A pg-task process that runs in a folder of its own. Create the object before the database, so that the process ends
 * before the database is dropped:
 *
 *     const pgTask = new PgTask();
 *     const database = await createDatabase();
 *     await pgTask.start({ url: database.url });
 */
export class PgTask {
  /** The log lines of the process so far, in order. */
  readonly lines: LogLine[] = [];
  readonly #watchers = new Set<() => void>();
  #child: ChildProcessByStdio<null, Readable, Readable> | null = null;
  #exit: Promise<{ code: number | null; signal: string | null }> | null = null;
  #ended: string | null = null;
  #stderr = "";

  constructor() {
    after(() => this.stop());
  }

  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error("pg-task has not been started");
    return pid;
  }

  /** Starts the process with this configuration. Resolves when it is ready. */
  async start(configuration: Readonly<Record<string, unknown>>): Promise<void> {
    const folder = await mkdtemp(join(tmpdir(), "pg-task-process-"));
    const file = join(folder, "pg_task.json");
    await writeFile(file, JSON.stringify(configuration));
    const child = spawn(process.execPath, [bin, "start", "--config", file], {
      cwd: folder,
      env: cleanEnvironment(),
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#child = child;
    this.#ended = null;
    this.#exit = new Promise((resolve) => {
      child.once("close", (code, signal) => {
        this.#ended = `pg-task ended with ${signal ?? `code ${code}`}: ${this.#stderr}`;
        this.#notifyWatchers();
        resolve({ code, signal });
      });
    });
    // The folder is not removed at the end of the test that started the process, because the process may outlive that
    // test.
    void this.#exit.then(() => rm(folder, { recursive: true, force: true }));
    child.stderr.on("data", (data) => (this.#stderr += String(data)));
    createInterface({ input: child.stdout }).on("line", (line) => {
      const parsed: LogLine = JSON.parse(line);
      this.lines.push(parsed);
      this.#notifyWatchers();
    });
    await this.logged((line) => line.msg === "ready", this.lines.length);
  }

  /** Waits for a matching log line at or after index `from`, and returns the first one. */
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

  /** Stops the process with SIGTERM, and asserts that it ends cleanly. */
  async stop(): Promise<void> {
    if (this.#exit === null) return;
    this.#child?.kill("SIGTERM");
    const exit = await this.#exit;
    this.#exit = null;
    assert.deepEqual(exit, { code: 0, signal: null }, this.#stderr);
    assert.equal(this.#stderr, "");
  }

  #notifyWatchers(): void {
    for (const watcher of this.#watchers) watcher();
  }
}

/** Returns the environment without the connection variables of the user who runs the tests. */
function cleanEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !name.startsWith("PG") && name !== "DATABASE_URL" && name !== "NODE_OPTIONS",
    ),
  );
}
