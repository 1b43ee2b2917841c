export interface LogLine {
  readonly level: string;
  readonly name: string;
  readonly pid: number;
  readonly msg: string;
  readonly [key: string]: unknown;
}

export class LogLines {
  readonly lines: LogLine[] = [];
  readonly #watchers = new Set<() => void>();
  /** How pg-task has ended, and what it has written. Null while it runs. */
  #end: string | null = null;

  protected add(line: LogLine): void {
    this.lines.push(line);
    this.notify();
  }

  /** Lets everybody who waits look again. */
  protected notify(): void {
    for (const watcher of this.#watchers) watcher();
  }

  protected setEnd(end: string | null): void {
    this.#end = end;
    this.notify();
  }

  linesMatching(msg: string | RegExp): LogLine[] {
    return this.lines.filter((line) => (typeof msg === "string" ? line.msg === msg : msg.test(line.msg)));
  }

  /** Waits for the `count`th log line whose `msg` is equal to this text or matches this pattern, and returns it. */
  async line(msg: string | RegExp, count = 1): Promise<LogLine> {
    return await this.#found(() => this.linesMatching(msg)[count - 1], `${count} lines ${String(msg)}`);
  }

  /** Waits for a matching log line at or after index `from`, and returns the first one. */
  async logged(fits: (line: LogLine) => boolean, from = 0): Promise<LogLine> {
    return await this.#found(() => this.lines.slice(from).find(fits), "a log line");
  }

  /** Resolves when `condition` returns true. It is called after each news: a log line, a message, the end. */
  async until(condition: () => boolean, what: string): Promise<void> {
    await this.#found(() => (condition() ? true : undefined), what);
  }

  async #found<T>(look: () => T | undefined, what: string): Promise<T> {
    return await new Promise((resolve, reject) => {
      const watcher = (): void => {
        const found = look();
        if (found === undefined && this.#end === null) return;
        this.#watchers.delete(watcher);
        if (found === undefined) reject(new Error(`expected ${what}, but ${this.#end}`));
        else resolve(found);
      };
      this.#watchers.add(watcher);
      watcher();
    });
  }
}
