import { threadId } from "node:worker_threads";
import { PgTaskError } from "../shared/errors.js";
import { HandshakeReceiver } from "../shared/ipc/handshake/receiver.js";
import type {
  Dispatch,
  ExecutorParameters,
  ExecutorThreadData,
  FromExecutor,
  ToExecutor,
} from "../shared/ipc/messages.js";
import { Executor } from "./executor.js";
import { ForwardingLog } from "./forwardingLog.js";

/** Runs one executor for the manager at the other end of the port; resolves when it was stopped. */
export function hostExecutor({ port, buffer }: ExecutorThreadData): Promise<void> {
  const slots = new HandshakeReceiver(buffer);
  const send = (message: FromExecutor): void => port.postMessage(message, largeOf(message));
  return new Promise((resolve) => {
    let executor: Executor | null = null;

    // Null is what was taken back: the manager has given this thread up and ends it.
    const start = (parameters: ExecutorParameters | null): Executor | null => {
      if (parameters === null) return null;
      return new Executor(parameters, { send, log: new ForwardingLog(send) });
    };

    const reconfigure = (parameters: ExecutorParameters | null): void => {
      if (parameters !== null) executor?.reconfigure(parameters);
    };

    const end = async (): Promise<void> => {
      await executor?.stop();
      port.close();
      resolve();
    };

    port.on("message", (message: ToExecutor) => {
      switch (message.type) {
        case "start":
          executor = start(slots.take<ExecutorParameters>(message));
          break;
        case "reconfigure":
          reconfigure(slots.take<ExecutorParameters>(message));
          break;
        case "open":
          executor?.open(message.sessions, message.group);
          break;
        case "dispatch":
          executor?.dispatch(slots.take<Dispatch>(message)?.runs ?? []);
          break;
        case "cancel":
          executor?.cancel(message.session, message.id);
          break;
        case "cancelled":
          executor?.cancelled(message.session, message.id);
          break;
        case "close":
          executor?.close(message.sessions);
          break;
        case "permit":
          executor?.permit(message.session, message.permit);
          break;
        case "recall":
          executor?.recall(message.runs);
          break;
        case "written":
          executor?.written();
          break;
        case "drop":
          executor?.drop(message.sessions);
          break;
        case "listen":
          executor?.listen(message.sessions);
          break;
        case "seek":
          void executor?.seek(message);
          break;
        case "room":
          executor?.room(message);
          break;
        case "abort":
          executor?.abort();
          break;
        case "stop":
          void end();
          break;
        default: {
          const unknown: never = message;
          throw new PgTaskError("INTERNAL", `unknown message ${JSON.stringify(unknown)}`);
        }
      }
    });
    send({ type: "hello", threadId });
  });
}

const nothing: ArrayBuffer[] = [];

/** What is moved to the manager, not copied. */
function largeOf(message: FromExecutor): ArrayBuffer[] {
  if (message.type !== "results") return nothing;
  const [result] = message.results;
  return result?.outcome === "ended" && result.large !== undefined
    ? [result.large.buffer]
    : nothing;
}
