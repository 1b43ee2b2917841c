import type { Log } from "../shared/log.js";

/** What a server's lines become: log entries, and its last words for whoever has to explain its end. */
export interface ServerLog {
  readonly take: (line: string) => void;
  lastWords(): string;
  /** Whether one of its last lines is like this. */
  says(pattern: RegExp): boolean;
  /** Milliseconds since it last said something. */
  silenceMs(): number;
  /** From here on nothing is a warning: ending sessions at a stop is what we asked for. */
  calm(): void;
}

const keptLines = 20;
/** How many of them explain an end that came without a warning. */
const toldLines = 3;
const keptCharacters = 1000;
const startOfMessage = /^(?:\[\d+\] )?([A-Z]+\d?):  /;
const continued = new Set(["DETAIL", "HINT", "QUERY", "CONTEXT", "STATEMENT", "LOCATION"]);
/** What may explain the server's end. */
const telling = new Set(["WARNING", "ERROR", "FATAL", "PANIC"]);
/** What concerns the server, not one statement: a task's error stands in its row. */
const warned = new Set(["FATAL", "PANIC"]);

export function createServerLog(log: Log): ServerLog {
  const kept: { readonly text: string; readonly isTelling: boolean }[] = [];
  let lastLineAt = performance.now();
  let message = "";
  let isCalm = false;
  return {
    take: (line) => {
      lastLineAt = performance.now();
      const severity = startOfMessage.exec(line)?.[1];
      if (severity !== undefined && !continued.has(severity)) message = severity;
      const text = line.replace(/^\[\d+\] /, "").slice(0, keptCharacters);
      kept.push({ text: text.trim(), isTelling: telling.has(message) });
      if (kept.length > keptLines) kept.shift();
      log[warned.has(message) && !isCalm ? "warn" : "debug"](`embedded server: ${line}`);
    },
    lastWords: () => {
      const explaining = kept.filter((line) => line.isTelling);
      const told = explaining.length > 0 ? explaining : kept.slice(-toldLines);
      return told.map((line) => line.text).join(" | ");
    },
    says: (pattern) => kept.some((line) => pattern.test(line.text)),
    silenceMs: () => performance.now() - lastLineAt,
    calm() {
      isCalm = true;
    },
  };
}
