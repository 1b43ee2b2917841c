import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after } from "node:test";
import { LogLines } from "./logLines.js";
import { bin } from "./project.js";
import { failing, saboteurOption, type Sabotage } from "./saboteur.js";
import { temporaryFolder } from "./temporaryFolder.js";

export interface ProcessOptions {
  /** Arguments of the program. `start` by default. */
  readonly args?: readonly string[];
  /** Environment of the process, in addition to PATH and HOME. */
  readonly env?: Readonly<Record<string, string>>;
  /** Working folder of the process. A new temporary folder by default. */
  readonly cwd?: string;
  /** Content of `pg_task.json` in the working folder. */
  readonly config?: unknown;
  /** Whether the process has an IPC channel to its parent, as it has under a process manager. */
  readonly forked?: boolean;
  /** Whether `sabotage` can make its threads fail. It then has an IPC channel. */
  readonly sabotaged?: boolean;
  /** The log line to wait for. */
  readonly until?: string | RegExp;
  readonly user?: number;
  /** A program and its arguments to run instead of pg-task. */
  readonly command?: readonly [string, ...string[]];
}

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export class TestProcess extends LogLines {
  readonly child: ChildProcess;
  readonly cwd: string;
  readonly output = { stdout: "", stderr: "" };
  readonly messages: unknown[] = [];
  /** Resolves when the process has ended and its output has been read. */
  readonly exit: Promise<Exit>;

  constructor(child: ChildProcess, cwd: string) {
    super();
    this.child = child;
    this.cwd = cwd;
    child.stdout?.on("data", (data: Buffer) => (this.output.stdout += data.toString()));
    child.stderr?.on("data", (data: Buffer) => (this.output.stderr += data.toString()));
    if (child.stdout !== null) {
      createInterface({ input: child.stdout }).on("line", (text) => this.#readLine(text));
    }
    child.on("message", (message) => {
      this.messages.push(message);
      this.notify();
    });
    this.exit = once(child, "close").then(([code, signal]) => {
      const exit: Exit = { code, signal };
      const { stdout, stderr } = this.output;
      this.setEnd(`it ended (${exit.signal ?? `code ${exit.code}`}) after\n${stdout}${stderr}`);
      return exit;
    });
  }

  get pid(): number {
    const { pid } = this.child;
    if (pid === undefined) throw new Error("the program could not be started");
    return pid;
  }

  async message(message: unknown): Promise<void> {
    await this.until(() => this.messages.includes(message), `the message ${String(message)}`);
  }

  /** Makes a thread fail. Resolves right before it fails. */
  async sabotage(order: Sabotage): Promise<void> {
    const failures = (): number => this.messages.filter((message) => message === failing).length;
    const before = failures();
    this.child.send({ sabotage: order });
    await this.until(() => failures() > before, "a thread to fail");
  }

  /** Tells the process to stop, and asserts that it ends without an error. */
  async stop(): Promise<void> {
    this.child.kill("SIGTERM");
    await this.stopped();
  }

  /** Waits until the process has ended, and asserts that it did so without an error. */
  async stopped(): Promise<void> {
    assert.deepEqual(await this.exit, { code: 0, signal: null }, this.output.stderr);
  }

  async end(signal: NodeJS.Signals = "SIGTERM"): Promise<Exit> {
    this.child.kill(signal);
    return await this.exit;
  }

  #readLine(text: string): void {
    // Other lines come from npm, or are printed by a program that uses pg-task.
    if (text.startsWith('{"')) this.add(JSON.parse(text));
    else this.notify();
  }
}

/** Starts pg-task. If the process still runs after the test, or after the file's tests, it is killed. */
export async function startProcess(options: ProcessOptions = {}): Promise<TestProcess> {
  const started = await spawnProcess(options);
  after(() => end(started));
  return await wait(started, options);
}

/**
 * Returns a function that starts pg-task as `startProcess` does, but also in a test, the process runs on until the file's
 * tests have ended. Call this outside the tests, and before the database is created.
 */
export async function processesOfFile(): Promise<typeof startProcess> {
  const all: TestProcess[] = [];
  after(() => Promise.all(all.map(end)));
  const folder = await temporaryFolder();
  return async (options = {}) => {
    const cwd = options.cwd ?? (await mkdtemp(join(folder, "process-")));
    const started = await spawnProcess({ ...options, cwd });
    all.push(started);
    return await wait(started, options);
  };
}

async function wait(started: TestProcess, { until }: ProcessOptions): Promise<TestProcess> {
  if (until !== undefined) await started.line(until);
  return started;
}

async function end({ child, exit }: TestProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
  await exit;
}

async function spawnProcess(options: ProcessOptions): Promise<TestProcess> {
  const cwd = options.cwd ?? (await temporaryFolder());
  if (options.config !== undefined) {
    await writeFile(join(cwd, "pg_task.json"), JSON.stringify(options.config));
  }
  const { sabotaged = false } = options;
  const [file, ...args] = options.command ?? [process.execPath, bin, ...(options.args ?? ["start"])];
  const child = spawn(file, args, {
    cwd,
    env: {
      PATH: process.env["PATH"],
      HOME: process.env["HOME"],
      ...(sabotaged ? { NODE_OPTIONS: saboteurOption } : {}),
      ...options.env,
    },
    stdio: ["ignore", "pipe", "pipe", ...(sabotaged || options.forked === true ? ["ipc" as const] : [])],
    ...(options.user === undefined ? {} : { uid: options.user, gid: options.user }),
  });
  return new TestProcess(child, cwd);
}
