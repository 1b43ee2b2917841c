import assert from "node:assert/strict";
import { after } from "node:test";
import type { EntryStatus } from "../../src/library/pgTask.js";
import { Service } from "../../src/library/process/service.js";
import { explainConfiguration } from "../../src/shared/config/loadConfiguration.js";
import type { PgTaskError } from "../../src/shared/errors.js";
import { createLog } from "../../src/shared/log.js";
import { LogLines } from "./logLines.js";

export interface PgTaskOptions {
  /** Environment, in addition to PATH and HOME. */
  readonly env?: Readonly<Record<string, string>>;
  /** A folder whose `pg_task.json` is the configuration. */
  readonly cwd?: string;
}

/**
 * A pg-task that runs in the test's process, as the library's `start` runs it. `startProcess` is for what only a process
 * has. Create the object before the database, so that pg-task ends before the database is dropped:
 *
 *     const pgTask = new PgTask();
 *     const database = await createDatabase();
 *     await pgTask.start({ url: database.url });
 */
export class PgTask extends LogLines {
  #service: Service | null = null;
  #cwd = "/";

  constructor() {
    super();
    after(() => this.stop());
  }

  get pid(): number {
    return process.pid;
  }

  /** Folder in which pg-task looks for its configuration. */
  get cwd(): string {
    return this.#cwd;
  }

  get entries(): readonly EntryStatus[] {
    return this.#service?.entries ?? [];
  }

  async start(configuration?: unknown, options: PgTaskOptions = {}): Promise<void> {
    const from = this.lines.length;
    this.launch(configuration, options);
    await this.logged((line) => line.msg === "ready" || line.msg === "standby", from);
  }

  /** Starts pg-task, without waiting until it is ready. */
  launch(configuration?: unknown, { env = {}, cwd = "/" }: PgTaskOptions = {}): void {
    this.#cwd = cwd;
    const writeLine = (line: string): void => this.add(JSON.parse(line));
    const service = new Service({
      source: {
        file: undefined,
        content: configuration,
        cwd,
        env: { PATH: process.env["PATH"], HOME: process.env["HOME"], ...env },
      },
      read: explainConfiguration,
      embedded: null,
      openLog: (level) => ({ log: createLog({ level, name: "pg_conf", write: writeLine }), writeLine }),
      handlesSignals: false,
      noServerRemedy: "",
    });
    this.#service = service;
    this.setEnd(null);
    void service.run();
    void service.stopped.then((error) => this.setEnd(`pg-task ended: ${error?.message ?? "stopped"}`));
  }

  /** Reads the configuration again, as SIGHUP makes a process do, or takes this one if it was started with another. */
  async reload(configuration?: unknown): Promise<void> {
    await this.#service?.reload(configuration === undefined ? undefined : JSON.parse(JSON.stringify(configuration)));
  }

  /** Resolves when pg-task has ended, with the error that has ended it. */
  async ended(): Promise<PgTaskError | null> {
    const error = (await this.#service?.stopped) ?? null;
    this.#service = null;
    return error;
  }

  /** Stops pg-task, and asserts that it ends without an error. */
  async stop(options: { readonly graceMs?: number } = {}): Promise<void> {
    const service = this.#service;
    this.#service = null;
    await service?.stop(options);
    assert.equal((await service?.stopped) ?? null, null);
  }
}

/** Starts a pg-task in the test's process. It is stopped after the file's tests. Resolves when it is ready. */
export async function startPgTask(configuration?: unknown, options: PgTaskOptions = {}): Promise<PgTask> {
  const pgTask = new PgTask();
  await pgTask.start(configuration, options);
  return pgTask;
}
