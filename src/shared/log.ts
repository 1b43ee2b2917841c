import { pino, type DestinationStream, type Logger } from "pino";

export type Log = Logger;

const secrets = [
  "password",
  "target.password",
  "*.password",
  "connectionString",
  "remote",
  "*.remote",
  "token",
];

/**
 * A log of JSON lines. `write` gets one whole line each time: standard output in the main thread,
 * a message to the parent in any other, so that lines of several threads never mix.
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
