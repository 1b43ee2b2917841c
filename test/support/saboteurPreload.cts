import threads = require("node:worker_threads");

/**
 * Fault injection. This module is preloaded into every thread of the program, and makes one of them fail as the test
 * requests. If the program is another process, the test sends the request over the IPC channel.
 *
 * It is a CommonJS module. An ES module needs `--import`, with which Node.js 20 also loads the bundled code of the threads
 * as ES modules, and can then end the whole process if a thread is terminated meanwhile (docs/decisions/0017).
 */
export interface Sabotage {
  /** The thread's role, or its thread id. Id 1 is the thread that was started first. */
  readonly thread: "manager" | "executor" | number;
  readonly how: "throw" | "exit" | "block" | "fill its memory";
}

/** What a thread reports right before it fails. */
export type Failing = "failing";

const failing: Failing = "failing";

const { BroadcastChannel, isMainThread, threadId } = threads;

const channel = new BroadcastChannel("sabotage");

if (isMainThread) {
  process.on("message", (message: { sabotage?: Sabotage }) => {
    if (message.sabotage !== undefined) channel.postMessage(message.sabotage);
  });
  // oxlint-disable-next-line unicorn/prefer-add-event-listener -- its types lack addEventListener
  channel.onmessage = (event) => {
    if (payload(event) === failing) process.send?.(failing);
  };
  // The channel must not keep the process alive.
  process.channel?.unref();
} else {
  // oxlint-disable-next-line unicorn/prefer-add-event-listener -- its types lack addEventListener
  channel.onmessage = (event) => {
    const order = payload(event);
    // The file of the thread is known only when its code runs.
    const kind = /manager.thread\.cjs$/.test(process.argv[1] ?? "") ? "manager" : "executor";
    if (order === failing || (order.thread !== kind && order.thread !== threadId)) return;
    channel.postMessage(failing);
    fail(order.how);
  };
}
channel.unref();

function payload(event: object & { readonly data?: Sabotage | Failing }): Sabotage | Failing {
  return event.data ?? failing;
}

function fail(how: Sabotage["how"]): void {
  if (how === "exit") process.exit(3);
  const filling: string[][] = [];
  for (;;) {
    if (how === "throw") throw new Error("sabotage");
    if (how === "fill its memory") filling.push(Array.from({ length: 1e6 }, String));
  }
}
