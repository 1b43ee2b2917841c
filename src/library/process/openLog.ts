import { writeSync } from "node:fs";
import { systemErrorCode } from "../../shared/errors.js";
import { createLog, type Log } from "../../shared/log.js";
import { printableJson } from "../../shared/printable.js";

export interface OpenLog {
  readonly log: Log;
  readonly writeLine: (line: string) => void;
}

/** On standard output: readable text if that is a terminal, and JSON lines otherwise. */
export async function openLog(level: string): Promise<OpenLog> {
  const writeLine = process.stdout.isTTY ? await openPrettyWriter() : writeStandardOutput;
  return { log: createLog({ level, name: "pg_conf", write: writeLine }), writeLine };
}

async function openPrettyWriter(): Promise<(line: string) => void> {
  const { default: pretty } = await import("pino-pretty");
  const stream = pretty({
    colorize: true,
    ignore: "pid",
    translateTime: "SYS:HH:MM:ss.l",
    sync: true,
  });
  return (line) => void stream.write(printableJson(line));
}

/** Synchronous, because an asynchronous write to a pipe might not finish before the process exits. */
function writeStandardOutput(line: string): void {
  let rest = Buffer.from(line);
  while (rest.length > 0) {
    try {
      rest = rest.subarray(writeSync(1, rest));
    } catch (error) {
      if (systemErrorCode(error) === "") throw error;
      // EAGAIN means that the pipe is full because its reader is slow. The write is repeated until it succeeds, so that
      // it blocks like a write to a file. Any other error means that the pipe has no reader.
      if (systemErrorCode(error) !== "EAGAIN") return;
    }
  }
}
