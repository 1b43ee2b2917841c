import { BroadcastChannel, isMainThread, threadId, workerData } from "node:worker_threads";

/**
 * Loaded before the program into each of its threads: makes one fail in the way that the test asks
 * for, through the process's parent's channel where that is another process.
 */
export interface Sabotage {
  /** What it does, or its number: they count from 1 in the order of their start. */
  readonly thread: "manager" | "executor" | number;
  readonly how: "throw" | "exit" | "block" | "fill its memory";
}

/** What a thread says before it fails. */
export const failing = "failing";

const channel = new BroadcastChannel("sabotage");

if (isMainThread) {
  process.on("message", (message: { sabotage?: Sabotage }) => {
    if (message.sabotage !== undefined) channel.postMessage(message.sabotage);
  });
  // oxlint-disable-next-line unicorn/prefer-add-event-listener -- its types know no other way
  channel.onmessage = (event) => {
    if (payload(event) === failing) process.send?.(failing);
  };
  // It must not be what keeps the process there.
  process.channel?.unref();
} else {
  const kind = workerData?.buffer instanceof SharedArrayBuffer ? "manager" : "executor";
  // oxlint-disable-next-line unicorn/prefer-add-event-listener -- its types know no other way
  channel.onmessage = (event) => {
    const order = payload(event);
    if (order === failing || (order.thread !== kind && order.thread !== threadId)) return;
    channel.postMessage(failing);
    fail(order.how);
  };
}
channel.unref();

function payload(
  event: object & { readonly data?: Sabotage | typeof failing },
): Sabotage | typeof failing {
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
