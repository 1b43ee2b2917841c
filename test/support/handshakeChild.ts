import { parentPort, workerData } from "node:worker_threads";
import { takePayload, type Handover } from "../../src/shared/ipc/handshake.js";

/** A test's request to the child: to take a payload, or to block its event loop until the gate is opened. */
export type ChildRequest = Handover | "block" | "leave";

export interface ChildData {
  /** Contains one Int32, which is 0 while the gate is closed. */
  readonly gate: SharedArrayBuffer;
}

const { gate }: ChildData = workerData;
const port = parentPort!;

port.on("message", (request: ChildRequest) => {
  if (request === "leave") port.close();
  else if (request === "block") {
    port.postMessage("blocking");
    Atomics.wait(new Int32Array(gate), 0, 0);
  } else port.postMessage(takePayload(request));
});
