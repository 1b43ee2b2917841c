import type { Log } from "../shared/log.js";

/**
 * Turns the server's output into log entries, and keeps the last lines of the output to explain how the server ended.
 */
export interface ServerLog {
  readonly take: (line: string) => void;
  lastLines(): string;
  /** Returns all kept lines. Some of those that explain a refused setting are not logged as errors. */
  allLines(): string;
  /** Whether one of the last lines matches the pattern. */
  matches(pattern: RegExp): boolean;
  /** Returns the time since the server's last line, in ms. */
  silenceMs(): number;
  /**
   * Announces a requested shutdown. From then on nothing is logged as a warning, because it is normal that the shutdown
   * terminates sessions.
   */
  expectShutdown(): void;
}

const maxLines = 20;
/** How many of the last lines explain the server's end if none of the kept lines is a warning or an error. */
const explainingLines = 3;
const maxCharacters = 1000;
const startOfMessage = /^(?:\[\d+\] )?([A-Z]+\d?):  /;
const continuations = new Set(["DETAIL", "HINT", "QUERY", "CONTEXT", "STATEMENT", "LOCATION"]);
/** Severities that may explain the server's end. */
const explaining = new Set(["WARNING", "ERROR", "FATAL", "PANIC"]);
/**
 * Severities of messages that concern the whole server and not just one statement. The error of a task need not be
 * logged, because it is in the task's row.
 */
const serverWide = new Set(["FATAL", "PANIC"]);

export function createServerLog(log: Log): ServerLog {
  const kept: { readonly text: string; readonly mayExplain: boolean }[] = [];
  let lastLineAt = performance.now();
  let message = "";
  let isShutdownExpected = false;
  return {
    take: (line) => {
      lastLineAt = performance.now();
      const severity = startOfMessage.exec(line)?.[1];
      if (severity !== undefined && !continuations.has(severity)) message = severity;
      const text = line.replace(/^\[\d+\] /, "").slice(0, maxCharacters);
      kept.push({ text: text.trim(), mayExplain: explaining.has(message) });
      if (kept.length > maxLines) kept.shift();
      log[serverWide.has(message) && !isShutdownExpected ? "warn" : "debug"](`embedded server: ${line}`);
    },
    lastLines: () => {
      const severe = kept.filter((line) => line.mayExplain);
      const lines = severe.length > 0 ? severe : kept.slice(-explainingLines);
      return lines.map((line) => line.text).join(" | ");
    },
    allLines: () => kept.map((line) => line.text).join(" | "),
    matches: (pattern) => kept.some((line) => pattern.test(line.text)),
    silenceMs: () => performance.now() - lastLineAt,
    expectShutdown() {
      isShutdownExpected = true;
    },
  };
}
