import type { Log } from "../shared/log.js";

const maxLines = 20;
const explainingLines = 3;
const maxCharacters = 1000;
const startOfMessage = /^(?:\[\d+\] )?([A-Z]+\d?):  /;
const continuations = new Set(["DETAIL", "HINT", "QUERY", "CONTEXT", "STATEMENT", "LOCATION"]);
const explaining = new Set(["WARNING", "ERROR", "FATAL", "PANIC"]);
/** Messages that concern the whole server. The error of a task need not be logged, because it is in the task's row. */
const serverWide = new Set(["FATAL", "PANIC"]);

/** Logs the server's output, and keeps its last lines to explain how the server ended. */
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

  /** Some of the lines that explain a refused setting are not logged as errors. */
  allLines(): string {
    return joined(this.#kept);
  }

  matches(pattern: RegExp): boolean {
    return this.#kept.some((line) => pattern.test(line.text));
  }

  silenceMs(): number {
    return performance.now() - this.#lastLineAt;
  }

  /** From now on nothing is logged as a warning, because a shutdown terminates sessions. */
  expectShutdown(): void {
    this.#isShutdownExpected = true;
  }
}

const joined = (lines: readonly { readonly text: string }[]): string => lines.map(({ text }) => text).join(" | ");
