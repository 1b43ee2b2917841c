import type { Client } from "../../shared/postgres/client.js";
import type { Log } from "../../shared/log.js";
import { WakeSignal } from "../../shared/wakeSignal.js";
import { maxSendingSilenceMs, maxSilenceMs } from "../../shared/tuning.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import type { SessionPool } from "./sessionPool.js";
import { idleOwners } from "./idleOwners.sql.js";
import { terminateOwners } from "../sql/ownerBackends.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import { backendCheckMs } from "../model/tuning.js";

/** Interval between checks while the pool has no session, in ms. `sessionsOpened` ends the wait early. */
const emptyCheckMs = 60_000;
/** The session's thread is asked only after the backend has been idle for this long, in ms. */
const minIdleMs = 100;

interface Silence {
  /** Identifies the silence by the session's task, what the backend is doing, and since when. */
  readonly key: string;
  readonly idleSince: number;
  /** After a silence of this length, in ms, the connection is half-open. */
  readonly limitMs: number;
  /** Whether the session's thread has confirmed that it has received nothing for that long. */
  confirmed: boolean;
}

interface SessionWatchdogComponents {
  readonly table: TaskTable;
  readonly sessions: SessionPool;
  /** Told that the task of this owner's session is not to blame for the loss of the session. */
  readonly orphans: { excuse(owner: string): void };
  readonly log: Log;
}

/**
 * Finds sessions with half-open connections: the backend is idle or gone while the session waits for its answer, or the
 * backend waits until its client reads. The session's own thread has to confirm that nothing arrives, because it may
 * just be too busy to read, or have been suspended.
 *
 *   backend busy ──idle, gone or blocked in sending, task unanswered──▶ silent ──thread confirms──▶ confirmed ──still so──▶ dropped
 */
export class SessionWatchdog {
  readonly #components: SessionWatchdogComponents;
  readonly #wakeSignal = new WakeSignal();
  #isPoolEmpty = false;
  #silent: ReadonlyMap<string, Silence> = new Map();

  constructor(components: SessionWatchdogComponents) {
    this.#components = components;
  }

  addSilence(owner: string, ms: number): void {
    const silence = this.#silent.get(owner);
    if (silence === undefined) return;
    const remainingMs = silence.limitMs - Math.min(ms, performance.now() - silence.idleSince);
    if (remainingMs <= 0) {
      silence.confirmed = true;
      this.#wakeSignal.notify();
    } else if (remainingMs < backendCheckMs.busy) setTimeout(() => this.#wakeSignal.notify(), remainingMs).unref();
  }

  sessionsOpened(): void {
    if (!this.#isPoolEmpty || this.#components.sessions.size === 0) return;
    this.#isPoolEmpty = false;
    this.#wakeSignal.notify();
  }

  async watch(client: Client, signal: AbortSignal): Promise<void> {
    signal.addEventListener("abort", () => this.#wakeSignal.notify(), { once: true });
    for (;;) {
      const { busy, size } = this.#components.sessions;
      this.#isPoolEmpty = size === 0;
      await this.#wakeSignal.wait(
        this.#isPoolEmpty ? emptyCheckMs : busy === 0 ? backendCheckMs.idle : backendCheckMs.busy,
      );
      if (signal.aborted) return;
      if (this.#components.sessions.busy === 0) continue;
      try {
        await this.#check(client);
      } catch (error) {
        if (!isTransient(error)) throw error;
      }
    }
  }

  async #check(client: Client): Promise<void> {
    const { log, orphans, sessions, table } = this.#components;
    const running = sessions.awaitedTasks;
    const runs = new Map(running.map(({ id, owner }) => [owner, id]));
    const silent = new Map<string, Silence>();
    const lost: string[] = [];
    const idle = await idleOwners(client, table, running);
    const now = performance.now();
    for (const { owner, since, idleMs, isSending } of idle) {
      const what = `${runs.get(owner)} ${isSending ? "sending" : "idle"} ${since}`;
      const limitMs = isSending ? maxSendingSilenceMs : maxSilenceMs;
      const before = this.#silent.get(owner);
      if (before?.key !== what) {
        silent.set(owner, { key: what, idleSince: now - (idleMs ?? 0), limitMs, confirmed: false });
      } else if (before.confirmed) lost.push(owner);
      else silent.set(owner, before);
    }
    this.#silent = silent;
    const long = [...silent].filter(([, { idleSince: idleFrom }]) => now - idleFrom >= minIdleMs);
    sessions.measureSilence(long.map(([owner]) => owner));
    if (lost.length === 0) return;
    for (const owner of lost) {
      log.warn({ id: runs.get(owner), owner }, "session connection is half-open");
      orphans.excuse(owner);
    }
    await terminateOwners(client, table, { owners: lost, areOwn: true });
    sessions.terminate(lost);
  }
}
