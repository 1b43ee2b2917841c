import { createLog } from "../shared/log.js";
import type { OpenLog } from "./process/openLog.js";

/** What pg-task needs of a logger. A logger of pino has it, and so does that of Fastify. */
export interface Logger {
  /** The least level that is logged. */
  readonly level?: string;
  /** Logs at the level trace. */
  trace(fields: object, message: string): void;
  /** Logs at the level debug. */
  debug(fields: object, message: string): void;
  /** Logs at the level info. */
  info(fields: object, message: string): void;
  /** Logs at the level warn. */
  warn(fields: object, message: string): void;
  /** Logs at the level error. */
  error(fields: object, message: string): void;
  /** Logs at the level fatal. */
  fatal(fields: object, message: string): void;
}

export const loggerMethods = ["trace", "debug", "info", "warn", "error", "fatal"] as const;

/**
 * Managers and executors run in threads, which format their lines themselves, so each line is parsed here. The logger
 * adds its own time. The name that pg-task gives to its part, such as `pg_conf`, becomes the field `component`.
 */
export function logTo(logger: Logger, level: string): OpenLog {
  const writeLine = (line: string): void => {
    const { level: lineLevel, name: component, msg, ...rest }: Record<string, unknown> = JSON.parse(line);
    const method = loggerMethods.find((each) => each === lineLevel) ?? "info";
    const fields = Object.fromEntries(Object.entries(rest).filter(([name]) => name !== "time" && name !== "pid"));
    logger[method]({ component, ...fields }, typeof msg === "string" ? msg : "");
  };
  return { log: createLog({ level, name: "pg_conf", write: writeLine }), writeLine };
}

export function noLog(): OpenLog {
  return { log: createLog({ level: "silent", name: "pg_conf", write: dropLine }), writeLine: dropLine };
}

const dropLine = (): void => {};
