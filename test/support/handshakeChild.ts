import { parentPort, workerData } from "node:worker_threads";
import { HandshakeReceiver } from "../../src/shared/ipc/handshake/receiver.js";
import type { SlotReference } from "../../src/shared/ipc/handshake/slots.js";

/** A test's request to the child. */
export type ChildRequest =
  | { readonly type: "take"; readonly reference: SlotReference }
  /** Makes the child block its event loop until the gate is opened. */
  | { readonly type: "block" }
  | { readonly type: "leave" };

export type Answer = { readonly type: "blocking" } | { readonly type: "payload"; readonly payload: object | null };

export interface ChildData {
  readonly buffer: SharedArrayBuffer;
  /** Contains one Int32, which is 0 while the gate is closed. */
  readonly gate: SharedArrayBuffer;
}

const { buffer, gate }: ChildData = workerData;
const receiver = new HandshakeReceiver(buffer);
const port = parentPort!;

port.on("message", (order: ChildRequest) => {
  switch (order.type) {
    case "take":
      answer({ type: "payload", payload: receiver.take(order.reference) });
      break;
    case "block":
      answer({ type: "blocking" });
      Atomics.wait(new Int32Array(gate), 0, 0);
      break;
    case "leave":
      port.close();
      break;
  }
});

function answer(message: Answer): void {
  port.postMessage(message);
}
