import { pino, type DestinationStream, type Logger } from "pino";
import { logRedaction } from "./logRedaction.js";

export type Log = Logger;

/** `write` gets whole lines of JSON. Those of other threads go to the parent thread, so that they never mix. */
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
      redact: logRedaction,
      formatters: { level: (label) => ({ level: label }) },
      timestamp: pino.stdTimeFunctions.isoTime,
    },
    destination,
  );
}
