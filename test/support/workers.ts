import { syncBuiltinESMExports } from "node:module";
import { after } from "node:test";
import threads, { BroadcastChannel, type Worker, type WorkerOptions } from "node:worker_threads";
import { saboteurFile, type Sabotage } from "./saboteur.js";

/** The worker threads that this process has started since `recordWorkers`. */
export const workers = new Set<Worker>();

/** Source of a module that worker threads started from now on preload; none if it is empty. */
export const preload = { source: "" };

const Original = threads.Worker;

class RecordedWorker extends Original {
  constructor(file: string | URL, options: WorkerOptions = {}) {
    const begin = `data:text/javascript,${encodeURIComponent(preload.source)}`;
    const more = preload.source === "" ? [] : ["--import", begin];
    super(file, { ...options, execArgv: ["--require", saboteurFile, ...more] });
    workers.add(this);
    this.once("exit", () => workers.delete(this));
  }
}

function use(worker: typeof Original): void {
  threads.Worker = worker;
  syncBuiltinESMExports();
}

/** Records the worker threads that this process starts, until the end of the file's tests. */
export function recordWorkers(): void {
  use(RecordedWorker);
  after(() => use(Original));
}

/** Makes a thread fail. Resolves right before the thread fails. */
export async function sabotage(order: Sabotage): Promise<void> {
  const channel = new BroadcastChannel("sabotage");
  // oxlint-disable-next-line unicorn/prefer-add-event-listener -- its types lack addEventListener
  const heard = new Promise<void>((resolve) => (channel.onmessage = () => resolve()));
  channel.postMessage(order);
  await heard;
  channel.close();
}
