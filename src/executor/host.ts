import { threadId } from "node:worker_threads";
import { PgTaskError } from "../shared/errors.js";
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

/**
 * Runs one executor for the manager at the other end of the port. Piscina calls this function once in each executor
 * thread.
 *
 * @returns a promise that resolves when the executor is stopped
 */
export default function hostExecutor({ port }: ExecutorThreadData): Promise<void> {
  const send = (message: FromExecutor): void => port.postMessage(message, transferList(message));
  return new Promise((resolve) => {
    let executor: Executor | null = null;

    // The parameters are null if the manager withdrew them because this thread did not answer in time. In that case the
    // manager ends the thread.
    const start = (parameters: ExecutorParameters | null): Executor | null => {
      if (parameters === null) return null;
      return new Executor(parameters, { send, log: new ForwardingLog(send) });
    };

    const end = async (): Promise<void> => {
      await executor?.stop();
      port.close();
      resolve();
    };

    port.on("message", (message: ToExecutor) => {
      if (message.type === "start") executor = start(takePayload<ExecutorParameters>(message));
      else if (message.type === "stop") void end();
      else if (executor !== null) handle(executor, message);
    });
    send({ type: "hello", threadId });
  });
}

function handle(executor: Executor, message: Exclude<ToExecutor, { type: "start" | "stop" }>): void {
  switch (message.type) {
    case "reconfigure": {
      const parameters = takePayload<ExecutorParameters>(message);
      if (parameters !== null) executor.reconfigure(parameters);
      break;
    }
    case "open":
      executor.open(message.sessions, message.group);
      break;
    case "dispatch":
      executor.dispatch(takePayload<Dispatch>(message)?.runs ?? []);
      break;
    case "cancel":
      executor.cancel(message.session, message.id);
      break;
    case "cancelAnswered":
      executor.cancelAnswered(message.session, message.id);
      break;
    case "close":
      executor.close(message.sessions);
      break;
    case "pipelinePermit":
      executor.setPipelinePermit(message.session, message.permit);
      break;
    case "recall":
      executor.recall(message.runs);
      break;
    case "largeOutputWritten":
      executor.largeOutputWritten();
      break;
    case "drop":
      executor.drop(message.sessions);
      break;
    case "reportSilence":
      executor.reportSilence(message.sessions);
      break;
    case "findRemoteProcess":
      void executor.findRemoteProcess(message);
      break;
    case "connectionPermit":
      executor.answerConnectionRequest(message);
      break;
    case "abort":
      executor.abort();
      break;
    default: {
      const unknown: never = message;
      throw new PgTaskError("INTERNAL", `unknown message ${JSON.stringify(unknown)}`);
    }
  }
}

const emptyTransferList: ArrayBuffer[] = [];

/** Returns the buffer of a large output, which is transferred to the manager's thread instead of being copied. */
function transferList(message: FromExecutor): ArrayBuffer[] {
  if (message.type !== "results") return emptyTransferList;
  const [result] = message.results;
  return result?.outcome === "ended" && result.largeOutput !== undefined
    ? [result.largeOutput.buffer]
    : emptyTransferList;
}
