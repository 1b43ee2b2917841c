import { threadId } from "node:worker_threads";
import { takePayload } from "../shared/ipc/handshake.js";
import type {
  Dispatch,
  ExecutorParameters,
  ExecutorThreadData,
  FromExecutor,
  ToExecutor,
} from "../shared/ipc/executorMessages.js";
import { Executor } from "./executor.js";
import { ForwardingLog } from "./forwardingLog.js";

/** Runs one executor for the manager at the other end of the port. Piscina calls this function once in each thread. */
export default function hostExecutor({ port }: ExecutorThreadData): Promise<void> {
  const send = (message: FromExecutor): void => port.postMessage(message, transferList(message));
  return new Promise((resolve) => {
    let executor: Executor | null = null;

    const end = async (): Promise<void> => {
      await executor?.stop();
      port.close();
      resolve();
    };

    port.on("message", (message: ToExecutor) => {
      if (message.type === "start") {
        const parameters = takePayload<ExecutorParameters>(message);
        // Null if the manager has withdrawn the parameters, because this thread did not answer in time. The manager then
        // ends the thread.
        if (parameters !== null) executor = new Executor(parameters, { send, log: new ForwardingLog(send) });
      } else if (message.type === "stop") void end();
      else if (executor === null) return;
      else if (message.type === "reconfigure") {
        const parameters = takePayload<ExecutorParameters>(message);
        if (parameters !== null) executor.reconfigure(parameters);
      } else if (message.type === "dispatch") executor.dispatch(takePayload<Dispatch>(message)?.runs ?? []);
      else executor.receive(message);
    });
    send({ type: "hello", threadId });
  });
}

const emptyTransferList: ArrayBuffer[] = [];

/** Returns the buffer of a large output, which is transferred instead of copied. */
function transferList(message: FromExecutor): ArrayBuffer[] {
  if (message.type !== "results") return emptyTransferList;
  const [result] = message.results;
  return result?.outcome === "ended" && result.largeOutput !== undefined
    ? [result.largeOutput.buffer]
    : emptyTransferList;
}
