import { parentPort, type MessagePort } from "node:worker_threads";
import { PgTaskError, toReport } from "../shared/errors.js";
import { takePayload } from "../shared/ipc/handshake.js";
import type { ManagerMemory, Rest, SleepingTable } from "../shared/ipc/sleepingTable.js";
import { Lifecycle } from "../shared/lifecycle.js";
import { createLog, type Log } from "../shared/log.js";
import { openTelemetryRegistry } from "../shared/openTelemetryRegistry.js";
import type { ExaminedEntries, FromManager, ManagerParameters, ToManager } from "../shared/ipc/managerMessages.js";
import { Examination } from "./loop/examination.js";
import { Manager } from "./manager.js";
import { ExecutorPools } from "./sessions/executorPools.js";
import type { CreateTracing } from "./telemetry/tracing.js";

/**
 * Runs one manager after another for the supervisor at the other end of `port`. When one has ended for another reason
 * than to sleep, the port is closed.
 */
function hostManager(port: MessagePort, createTracing: CreateTracing | null): void {
  let hosted: { manager: Manager; lifecycle: Lifecycle } | null = null;
  const send = (message: FromManager): void => port.postMessage(message);

  const pools = new ExecutorPools();
  let memory: ManagerMemory | null = null;
  const reportEnd = async (lifecycle: Lifecycle): Promise<void> => {
    const reason = await lifecycle.stopped;
    const isAsleep = reason === null && memory !== null;
    send({ type: "stopped", reason: reason === null ? null : toReport(reason), memory });
    hosted = null;
    memory = null;
    if (isAsleep) pools.keep();
    else {
      port.close();
      await pools.end();
    }
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
    const fellAsleep = (known: ManagerMemory): void => {
      memory = known;
      void lifecycle.stop();
    };
    const threadLog = createNamedLog("pg_task");
    pools.begin();
    const manager = new Manager(parameters, { send, log, threadLog, createTracing, fellAsleep, pools });
    const lifecycle = new Lifecycle(manager, { name: "manager", log });
    hosted = { manager, lifecycle };
    lifecycle.start().catch(() => {});
    void reportEnd(lifecycle);
  };

  const examinations = new Map<number, Examination>();
  /** If the server cannot be asked, the managers find out why. */
  const examine = async (entries: ExaminedEntries["entries"], number: number): Promise<void> => {
    let examination: Examination | null = null;
    let tables: readonly (SleepingTable | null)[] = entries.map(() => null);
    try {
      examination = await Examination.open(entries);
      tables = await examination.find();
      examinations.set(number, examination);
    } catch {
      void examination?.close();
    }
    send({ type: "examined", number, tables });
  };
  const check = async (number: number, places: readonly number[]): Promise<void> => {
    const examination = examinations.get(number);
    examinations.delete(number);
    let rests: readonly (Rest | null)[] = places.map(() => null);
    try {
      rests = (await examination?.check(places)) ?? rests;
    } catch {}
    send({ type: "checked", number, rests });
    await examination?.close();
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
      case "examine": {
        const examined = takePayload<ExaminedEntries>(message);
        if (examined === null) port.close();
        else void examine(examined.entries, message.number);
        break;
      }
      case "check":
        void check(message.number, message.places);
        break;
      case "grant":
        hosted?.manager.grant(message.sessions, message.number);
        break;
      case "retryNow":
        hosted?.manager.retry();
        break;
      case "probe":
        hosted?.manager.probe();
        break;
      case "sleep":
        hosted?.manager.acceptSleep();
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

/** Null without an SDK: the OpenTelemetry API takes 0.8 MB in each thread (decision 29). */
async function loadTracing(): Promise<CreateTracing | null> {
  if (!(openTelemetryRegistry in globalThis)) return null;
  const { Tracing } = await import("./telemetry/tracing.js");
  return (...options) => Tracing.create(...options);
}

async function main(port: MessagePort): Promise<void> {
  // Messages that arrive meanwhile are kept until `hostManager` listens.
  const createTracing = await loadTracing();
  hostManager(port, createTracing);
}

if (parentPort !== null) void main(parentPort);
