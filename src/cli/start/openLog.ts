import { writeSync } from "node:fs";
import { createLog, type Log } from "../../shared/log.js";

export interface OpenLog {
  readonly log: Log;
  /** For lines that other threads have made. */
  readonly writeLine: (line: string) => void;
}

/** The process's log on standard output: JSON lines, made readable on a terminal. */
export async function openLog(level: string): Promise<OpenLog> {
  const writeLine = process.stdout.isTTY ? await prettyLines() : plainLine;
  return { log: createLog({ level, name: "pg_conf", write: writeLine }), writeLine };
}

async function prettyLines(): Promise<(line: string) => void> {
  const { default: pretty } = await import("pino-pretty");
  const stream = pretty({
    colorize: true,
    ignore: "pid",
    translateTime: "SYS:HH:MM:ss.l",
    sync: true,
  });
  return (line) => void stream.write(line);
}

/** Synchronous, so that the last lines before an exit are not lost in a pipe. */
function plainLine(line: string): void {
  let rest = Buffer.from(line);
  while (rest.length > 0) {
    try {
      rest = rest.subarray(writeSync(1, rest));
    } catch (error) {
      if (!(error instanceof Error) || !("code" in error)) throw error;
      // A pipe whose reader is slow: it blocks us as a file would. One without reader: nobody to tell.
      if (error.code !== "EAGAIN") return;
    }
  }
}
