import type { FromExecutor, LogEntry } from "../shared/ipc/executorMessages.js";

/** Sends log lines to the manager, so that executor threads need not load the logger. */
export class ForwardingLog {
  readonly #send: (message: FromExecutor) => void;

  constructor(send: (message: FromExecutor) => void) {
    this.#send = send;
  }

  debug(fields: LogEntry["fields"], message: string): void {
    this.#send({ type: "log", level: "debug", fields, message });
  }

  warn(fields: LogEntry["fields"], message: string): void {
    this.#send({ type: "log", level: "warn", fields, message });
  }
}
