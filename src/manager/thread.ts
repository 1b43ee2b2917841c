import { parentPort, type MessagePort } from "node:worker_threads";
import { PgTaskError, toReport } from "../shared/errors.js";
import { takePayload } from "../shared/ipc/handshake.js";
import { Lifecycle } from "../shared/lifecycle.js";
import { createLog, type Log } from "../shared/log.js";
import type { FromManager, ManagerParameters, ToManager } from "../shared/ipc/managerMessages.js";
import { Manager } from "./manager.js";
import { loadTracing, type CreateTracing } from "./telemetry/loadTracing.js";

/** Runs one manager for the supervisor at the other end of `port`. When the manager has ended, the port is closed. */
function hostManager(port: MessagePort, createTracing: CreateTracing | null): void {
  let hosted: { manager: Manager; lifecycle: Lifecycle } | null = null;
  const send = (message: FromManager): void => port.postMessage(message);

  const reportEnd = async (lifecycle: Lifecycle): Promise<void> => {
    const reason = await lifecycle.stopped;
    send({ type: "stopped", reason: reason === null ? null : toReport(reason) });
    port.close();
  };

  const start = (parameters: ManagerParameters): void => {
    const { schema, table, target } = parameters.entry;
    const createNamedLog = (name: string): Log =>
      createLog({
        level: parameters.entry.parameters["pg_conf.log"],
        name: `${name} ${target.database} ${schema}.${table}`,
        write: (line) => send({ type: "log", line }),
      });
    const log = createNamedLog("pg_work");
    const manager = new Manager(parameters, { send, log, threadLog: createNamedLog("pg_task"), createTracing });
    const lifecycle = new Lifecycle(manager, { name: "manager", log });
    hosted = { manager, lifecycle };
    lifecycle.start().catch(() => {});
    void reportEnd(lifecycle);
  };

  port.on("message", (message: ToManager) => {
    switch (message.type) {
      case "start": {
        const parameters = takePayload<ManagerParameters>(message);
        // The supervisor has withdrawn the payload and given up this thread.
        if (parameters === null) port.close();
        else start(parameters);
        break;
      }
      case "reconfigure": {
        const parameters = takePayload<ManagerParameters>(message);
        if (parameters !== null) hosted?.manager.reconfigure(parameters);
        break;
      }
      case "grant":
        hosted?.manager.grant(message.sessions, message.number);
        break;
      case "retryNow":
        hosted?.manager.retry();
        break;
      case "probe":
        hosted?.manager.probe();
        break;
      case "heartbeat":
        send({ type: "heartbeat" });
        break;
      case "stop":
        if (hosted === null) port.close();
        else void hosted.lifecycle.stop(message.graceMs);
        break;
      default: {
        const unknown: never = message;
        throw new PgTaskError("INTERNAL", `unknown message ${JSON.stringify(unknown)}`);
      }
    }
  });
}

async function main(port: MessagePort): Promise<void> {
  // Messages that arrive meanwhile are kept until `hostManager` listens.
  const createTracing = await loadTracing();
  hostManager(port, createTracing);
}

if (parentPort !== null) void main(parentPort);
