import type { Log } from "../shared/log.js";

/** What a server's lines become: log entries, and its last words for whoever has to explain its end. */
export interface ServerLog {
  readonly take: (line: string) => void;
  lastWords(): string;
  /** Milliseconds since it last said something. */
  silenceMs(): number;
  /** From here on nothing is a warning: ending sessions at a stop is what we asked for. */
  calm(): void;
}

const keptLines = 20;
const keptCharacters = 1000;
const startOfMessage = /^(?:\[\d+\] )?([A-Z]+\d?):  /;
const continued = new Set(["DETAIL", "HINT", "QUERY", "CONTEXT", "STATEMENT", "LOCATION"]);
const warned = new Set(["WARNING", "ERROR", "FATAL", "PANIC"]);

export function createServerLog(log: Log): ServerLog {
  const words: string[] = [];
  let lastLineAt = performance.now();
  let isWarning = false;
  let isCalm = false;
  return {
    take: (line) => {
      lastLineAt = performance.now();
      words.push(line.replace(/^\[\d+\] /, "").slice(0, keptCharacters));
      if (words.length > keptLines) words.shift();
      const severity = startOfMessage.exec(line)?.[1];
      if (severity !== undefined && !continued.has(severity)) isWarning = warned.has(severity);
      log[isWarning && !isCalm ? "warn" : "debug"](`embedded server: ${line}`);
    },
    lastWords: () => words.map((line) => line.trim()).join(" | "),
    silenceMs: () => performance.now() - lastLineAt,
    calm() {
      isCalm = true;
    },
  };
}
