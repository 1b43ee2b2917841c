import type { Log } from "../shared/log.js";

const maxLines = 20;
const explainingLines = 3;
const maxCharacters = 1000;
const startOfMessage = /^(?:\[\d+\] )?([A-Z]+\d?):  /;
const continuations = new Set(["DETAIL", "HINT", "QUERY", "CONTEXT", "STATEMENT", "LOCATION"]);
const explaining = new Set(["WARNING", "ERROR", "FATAL", "PANIC"]);
/** How long before the end of a running server a line can explain it, in ms. */
const explainsEndMs = 10_000;
const runs = /database system is ready to accept connections/;
/** Messages that concern the whole server. The error of a task need not be logged, because it is in the task's row. */
const serverWide = new Set(["FATAL", "PANIC"]);

interface Line {
  readonly text: string;
  readonly severity: string;
  /** The server process that has written it. */
  readonly pid: string;
  readonly at: number;
}

/** Logs the server's output, and keeps its last lines to explain how the server ended. */
export class ServerLog {
  readonly #log: Log;
  readonly #now: () => number;
  #kept: Line[] = [];
  #lastLineAt: number;
  #pid = "";
  #severity = "";
  #isShutdownExpected = false;

  constructor(log: Log, now = (): number => performance.now()) {
    this.#log = log;
    this.#now = now;
    this.#lastLineAt = now();
  }

  readonly take = (line: string): void => {
    this.#lastLineAt = this.#now();
    const severity = startOfMessage.exec(line)?.[1];
    if (severity !== undefined && !continuations.has(severity)) this.#severity = severity;
    // Continuation lines of a message have no prefix.
    this.#pid = /^\[(\d+)\]/.exec(line)?.[1] ?? this.#pid;
    const text = line.replace(/^\[\d+\] /, "").slice(0, maxCharacters);
    if (runs.test(line)) this.#kept = [];
    else this.#kept.push({ text: text.trim(), severity: this.#severity, pid: this.#pid, at: this.#lastLineAt });
    if (this.#kept.length > maxLines) this.#kept.shift();
    this.#log[serverWide.has(this.#severity) && !this.#isShutdownExpected ? "warn" : "debug"](
      `embedded server: ${line}`,
    );
  };

  lastLines(): string {
    const severe = this.#kept.filter(({ severity }) => explaining.has(severity));
    return joined(severe.length > 0 ? severe : this.#kept.slice(-explainingLines));
  }

  /**
   * Why a running server has ended, as far as its log says so. A server that is killed logs nothing, and then the errors of
   * statements and connections before its end do not explain it.
   *
   * @param pid of the server's main process
   */
  explainEnd(pid: number): string {
    const recent = this.#kept.filter(({ at }) => this.#now() - at <= explainsEndMs);
    const isOwn = (line: Line): boolean => line.pid === String(pid);
    if (!recent.some((line) => isOwn(line) || line.severity === "PANIC")) return "it has logged nothing about its end";
    return `its last log lines: ${joined(recent.filter((line) => isOwn(line) || serverWide.has(line.severity)))}`;
  }

  /** Some of the lines that explain a refused setting are not logged as errors. */
  allLines(): string {
    return joined(this.#kept);
  }

  matches(pattern: RegExp): boolean {
    return this.#kept.some((line) => pattern.test(line.text));
  }

  silenceMs(): number {
    return this.#now() - this.#lastLineAt;
  }

  /** From now on nothing is logged as a warning, because a shutdown terminates sessions. */
  expectShutdown(): void {
    this.#isShutdownExpected = true;
  }
}

const joined = (lines: readonly { readonly text: string }[]): string => lines.map(({ text }) => text).join(" | ");
