import type { Log } from "../shared/log.js";

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

/**
 * Turns the server's output into log entries, and keeps the last lines of the output to explain how the server ended.
 */
export class ServerLog {
  readonly #log: Log;
  readonly #kept: { readonly text: string; readonly mayExplain: boolean }[] = [];
  #lastLineAt = performance.now();
  #severity = "";
  #isShutdownExpected = false;

  constructor(log: Log) {
    this.#log = log;
  }

  readonly take = (line: string): void => {
    this.#lastLineAt = performance.now();
    const severity = startOfMessage.exec(line)?.[1];
    if (severity !== undefined && !continuations.has(severity)) this.#severity = severity;
    const text = line.replace(/^\[\d+\] /, "").slice(0, maxCharacters);
    this.#kept.push({ text: text.trim(), mayExplain: explaining.has(this.#severity) });
    if (this.#kept.length > maxLines) this.#kept.shift();
    this.#log[serverWide.has(this.#severity) && !this.#isShutdownExpected ? "warn" : "debug"](
      `embedded server: ${line}`,
    );
  };

  lastLines(): string {
    const severe = this.#kept.filter((line) => line.mayExplain);
    return joined(severe.length > 0 ? severe : this.#kept.slice(-explainingLines));
  }

  /** Returns all kept lines. Some of those that explain a refused setting are not logged as errors. */
  allLines(): string {
    return joined(this.#kept);
  }

  /** Whether one of the last lines matches the pattern. */
  matches(pattern: RegExp): boolean {
    return this.#kept.some((line) => pattern.test(line.text));
  }

  /** Returns the time since the server's last line, in ms. */
  silenceMs(): number {
    return performance.now() - this.#lastLineAt;
  }

  /**
   * Announces a requested shutdown. From then on nothing is logged as a warning, because it is normal that the shutdown
   * terminates sessions.
   */
  expectShutdown(): void {
    this.#isShutdownExpected = true;
  }
}

const joined = (lines: readonly { readonly text: string }[]): string => lines.map(({ text }) => text).join(" | ");
