import { writeSync } from "node:fs";
import { createLog, type Log } from "../../shared/log.js";

export interface OpenLog {
  readonly log: Log;
  /** Writes a line that another thread has already formatted. */
  readonly writeLine: (line: string) => void;
}

/**
 * Opens the process's log on standard output. The log consists of JSON lines, or of readable text if standard output is
 * a terminal.
 */
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
  return (line) => void stream.write(line);
}

/** Writes synchronously, so that the last lines before an exit are not lost in a pipe. */
function writeStandardOutput(line: string): void {
  let rest = Buffer.from(line);
  while (rest.length > 0) {
    try {
      rest = rest.subarray(writeSync(1, rest));
    } catch (error) {
      if (!(error instanceof Error) || !("code" in error)) throw error;
      // EAGAIN means that a pipe has a slow reader. The write is retried until it succeeds, so that it blocks like a
      // write to a file. Any other error means that the output has no reader.
      if (error.code !== "EAGAIN") return;
    }
  }
}
