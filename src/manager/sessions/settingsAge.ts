import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { SessionPool } from "./sessionPool.js";
import { settingsVersion } from "./settingsVersion.sql.js";

/** While tasks are claimed for busy sessions only it is looked so often, in ms: each look costs as much as a small query. */
const lookMs = 250;

/**
 * Renews sessions that have other settings than new ones would have. It looks right behind a claim, and
 * its answer is awaited before anything is given to a session: so a task that was inserted after a change
 * does not run in a session from before, but for one that is put behind others in the next 250 ms.
 */
export class SettingsAge {
  readonly #sessions: SessionPool;
  readonly #log: Log;
  #version: string | null = null;
  #lookedAt = -Infinity;
  #failure: unknown = null;

  constructor({ sessions, log }: { readonly sessions: SessionPool; readonly log: Log }) {
    this.#sessions = sessions;
    this.#log = log;
  }

  /**
   * Compares with what it was before, and is to be called before any sessions are opened: those that are
   * opened from then on have at least these settings.
   *
   * @throws what the server said
   */
  async compare(client: Client): Promise<void> {
    const version = await settingsVersion(client);
    if (this.#version !== null && this.#version !== version) {
      this.#log.info({ sessions: this.#sessions.size }, "settings changed, sessions are renewed");
      this.#sessions.renew();
    }
    this.#version = version;
    this.#failure = null;
  }

  /**
   * Never rejects, since it must not keep from its session what was claimed before it. What failed and may
   * pass by itself is made up for by the next look; anything else is thrown by `check`.
   *
   * @param always whether it is not left out when it was just looked.
   */
  async look(client: Client, always: boolean): Promise<void> {
    const now = performance.now();
    if (!always && now - this.#lookedAt < lookMs) return;
    this.#lookedAt = now;
    try {
      await this.compare(client);
    } catch (error) {
      this.#lookedAt = -Infinity;
      if (isTransient(error)) this.#log.debug({ err: error }, "look at the settings put off");
      else this.#failure = error;
    }
  }

  /** @throws what a look has failed with since the last call */
  check(): void {
    const failure = this.#failure;
    this.#failure = null;
    if (failure !== null) throw failure;
  }
}
