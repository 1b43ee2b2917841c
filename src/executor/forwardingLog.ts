import type { FromExecutor, LogEntry } from "../shared/ipc/messages.js";

/** What an executor says goes to the manager, which writes it: so no thread has to load what logs are written with. */
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
