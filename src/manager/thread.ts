import { parentPort, workerData } from "node:worker_threads";
import type { ManagerThreadData } from "../shared/ipc/messages.js";
import { hostManager } from "./host.js";

if (parentPort !== null) {
  const data: ManagerThreadData = workerData;
  hostManager(parentPort, data);
}
