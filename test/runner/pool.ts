import { fork, type ChildProcess } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { FileResult, FromWorker, ToWorker } from "./messages.js";

const worker = fileURLToPath(new URL("worker.js", import.meta.url));
const reporter = new URL("reporter.js", import.meta.url).href;

/** How long a file may take, in ms. It ends a file that hangs, so that the others are still run. */
const fileMs = 600_000;
/** How long a worker may take to end after its last file, in ms. */
const endMs = 60_000;

export interface TestFile {
  readonly path: string;
  /** Whether it needs a process of its own, because it changes what other files use. */
  readonly ownProcess: boolean;
}

interface RunOptions {
  /** Called for each file as it ends. */
  readonly onEnd: (result: FileResult) => void;
  /** Called before a file that takes too long is ended. Must not reject. */
  readonly onHang: () => Promise<void>;
  /** Kills the processes. */
  readonly interrupt: AbortSignal;
}

/** Runs test files in `count` processes. */
export async function runFiles(
  files: readonly TestFile[],
  count: number,
  { onEnd, onHang, interrupt }: RunOptions,
): Promise<void> {
  const waiting = [...files];
  interrupt.addEventListener("abort", () => waiting.splice(0));
  const runInTurn = async (): Promise<void> => {
    let shared: Worker | null = null;
    for (let file = waiting.shift(); file !== undefined; file = waiting.shift()) {
      if (file.ownProcess) {
        const own = new Worker(interrupt);
        onEnd(await own.run(file.path, onHang));
        await own.end(onEnd);
        continue;
      }
      if (shared === null || shared.hasEnded) shared = new Worker(interrupt);
      onEnd(await shared.run(file.path, onHang));
    }
    await shared?.end(onEnd);
  };
  await Promise.all(Array.from({ length: count }, runInTurn));
}

const failed = (file: string, name: string, error: string): FileResult => ({
  file,
  passed: 0,
  failures: [{ name, error }],
  skipped: [],
  diagnostics: [],
  seconds: 0,
  cpuSeconds: 0,
});

/** A process that runs test files, one at a time. */
class Worker {
  readonly #child: ChildProcess = fork(worker, [], { execArgv: [`--test-reporter=${reporter}`] });
  /** Resolves to how the process has ended. */
  readonly #end: Promise<string>;
  #onResult: (result: FileResult) => void = () => {};
  #lastFile = "";
  #lastTest = "";
  #hasFailures = false;
  hasEnded = false;

  constructor(interrupt: AbortSignal) {
    interrupt.addEventListener("abort", () => this.#child.kill("SIGKILL"));
    this.#end = new Promise((resolve) => {
      this.#child.once("close", (code, signal) => {
        this.hasEnded = true;
        resolve(signal ?? `code ${code}`);
      });
    });
    this.#child.on("message", (message: FromWorker) => {
      if ("begun" in message) this.#lastTest = message.begun;
      else this.#onResult(message);
    });
  }

  /** Runs a file. If the process ends meanwhile, the file has failed. */
  async run(file: string, onHang: () => Promise<void>): Promise<FileResult> {
    this.#lastFile = file;
    this.#lastTest = "";
    const result = new Promise<FileResult>((resolve) => {
      this.#onResult = resolve;
    });
    this.#send({ file });
    const limit = setTimeout(() => void onHang().finally(() => this.#child.kill("SIGKILL")), fileMs);
    const ended = this.#end.then((how) =>
      failed(file, "the process of the test", `it ended with ${how}; the last test that began was "${this.#lastTest}"`),
    );
    const first = await Promise.race([result, ended]);
    clearTimeout(limit);
    if (first.failures.length > 0) this.#hasFailures = true;
    return first;
  }

  /** Lets the process end. Reports a failure if it does not end, or not as it should. */
  async end(onFailure: (result: FileResult) => void): Promise<void> {
    if (this.hasEnded) return;
    this.#send({ file: null });
    const limit = setTimeout(() => this.#child.kill("SIGKILL"), endMs);
    const how = await this.#end;
    clearTimeout(limit);
    if (how === "code 0" || (how === "code 1" && this.#hasFailures)) return;
    const error = `it ended with ${how}; SIGKILL means that a file has left something open that keeps the process alive`;
    onFailure(failed(this.#lastFile, "the end of the process in which this file was the last", error));
  }

  #send(message: ToWorker): void {
    // If the process has just ended, `#end` says so.
    this.#child.send(message, () => {});
  }
}
