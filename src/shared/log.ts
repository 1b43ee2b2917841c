import { pino, type DestinationStream, type Logger } from "pino";

export type Log = Logger;

const secrets = ["password", "target.password", "*.password", "connectionString", "remote", "*.remote", "token"];

/**
 * Creates a log of JSON lines. `write` receives whole lines: the main thread writes each line to standard output, and
 * other threads send each line to the parent thread. Lines of several threads therefore never mix.
 */
export function createLog(options: {
  readonly level: string;
  readonly name: string;
  readonly write: (line: string) => void;
}): Log {
  const destination: DestinationStream = { write: options.write };
  return pino(
    {
      level: options.level,
      base: { name: options.name, pid: process.pid },
      redact: { paths: secrets, censor: "***" },
      formatters: { level: (label) => ({ level: label }) },
      timestamp: pino.stdTimeFunctions.isoTime,
    },
    destination,
  );
}
