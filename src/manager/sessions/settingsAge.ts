import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { SessionPool } from "./sessionPool.js";
import { readSettingsVersion } from "./settingsVersion.sql.js";
import { settingsCheckMs } from "../model/tuning.js";

interface SettingsAgeComponents {
  readonly sessions: SessionPool;
  readonly table: TaskTable;
  readonly log: Log;
}

/**
 * Replaces sessions after ALTER ROLE or ALTER DATABASE. The settings are read by each claim or right after it, before any
 * claimed task is assigned, so that a task that is inserted after a change does not run in an older session. The
 * exception is a task that is queued behind others within 250 ms of the last comparison.
 */
export class SettingsAge {
  readonly #components: SettingsAgeComponents;
  #version: string | null = null;
  #comparedAt = -Infinity;
  #failure: unknown = null;

  constructor(components: SettingsAgeComponents) {
    this.#components = components;
  }

  /** Must be called before the first session is opened, so that none has older settings than the version read. */
  async compare(client: Client): Promise<void> {
    this.accept(await readSettingsVersion(client, this.#components.table));
  }

  /** A claim that reads the version with its tasks must call this before any of the tasks is assigned. */
  accept(version: string): void {
    if (this.#version !== null && this.#version !== version) {
      const { log, sessions } = this.#components;
      log.info({ sessions: sessions.size }, "settings changed, replacing sessions");
      sessions.markStale();
    }
    this.#version = version;
    this.#failure = null;
  }

  /**
   * Like `compare`, but never rejects, because claimed tasks must reach their sessions in any case. After a transient
   * error, the next call compares again. Any other error is kept, and `throwFailure` throws it.
   *
   * @param always whether to compare even if the last comparison was less than 250 ms ago
   */
  async tryCompare(client: Client, always: boolean): Promise<void> {
    const now = performance.now();
    if (!always && now - this.#comparedAt < settingsCheckMs) return;
    this.#comparedAt = now;
    try {
      await this.compare(client);
    } catch (error) {
      this.#comparedAt = -Infinity;
      if (isTransient(error)) this.#components.log.debug({ err: error }, "settings check deferred");
      else this.#failure = error;
    }
  }

  throwFailure(): void {
    const failure = this.#failure;
    this.#failure = null;
    if (failure !== null) throw failure;
  }
}
