import { syncBuiltinESMExports } from "node:module";
import threads, { BroadcastChannel, type Worker, type WorkerOptions } from "node:worker_threads";
import type { Sabotage } from "./saboteur.js";

const saboteur = new URL("saboteur.js", import.meta.url).href;

/** The worker threads of this process, which has to import this before what starts them. */
export const workers = new Set<Worker>();

/** What the next workers begin with, as a module's source. */
export const beginning = { source: "" };

const Original = threads.Worker;

class Recorded extends Original {
  constructor(file: string | URL, options: WorkerOptions = {}) {
    const begin = `data:text/javascript,${encodeURIComponent(beginning.source)}`;
    super(file, { ...options, execArgv: ["--import", saboteur, "--import", begin] });
    workers.add(this);
    this.once("exit", () => workers.delete(this));
  }
}

threads.Worker = Recorded;
syncBuiltinESMExports();

/** Makes a thread fail; resolves when it is about to. */
export async function sabotage(order: Sabotage): Promise<void> {
  const channel = new BroadcastChannel("sabotage");
  // oxlint-disable-next-line unicorn/prefer-add-event-listener -- its types know no other way
  const heard = new Promise<void>((resolve) => (channel.onmessage = () => resolve()));
  channel.postMessage(order);
  await heard;
  channel.close();
}
