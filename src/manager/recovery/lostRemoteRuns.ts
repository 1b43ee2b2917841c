import type { Log } from "../../shared/log.js";
import type { WakeSignal } from "../../shared/wakeSignal.js";
import type { ExecutorThreads } from "../sessions/executorThreads.js";
import type { RemoteRun } from "./remoteRuns.sql.js";
import { remoteQueryMs } from "../model/tuning.js";

const maxConcurrent = 8;

interface LostRun {
  readonly run: RemoteRun;
  answeredAt: number;
  queryAt: number;
  pauseMs: number;
  isQuerying: boolean;
  isSilent: boolean;
  isGone: boolean;
}

interface LostRemoteRunsComponents {
  readonly executors: Pick<ExecutorThreads, "findRemoteProcess">;
  readonly wakeSignal: Pick<WakeSignal, "notify">;
  /** How long a server may be silent before its runs are given up, in ms. */
  readonly resetMs: number;
  readonly log: Log;
}

/**
 * Remote runs whose local session is gone, but which may still be running on the remote server. The servers are queried
 * in parallel, so that one that does not answer does not delay the others.
 *
 *   lost ──its backend is gone, or the server was silent for `reset`──▶ gone
 *    ▲ │
 *    └─┘ it still runs, or the server does not answer
 */
export class LostRemoteRuns {
  readonly #components: LostRemoteRunsComponents;
  readonly #now: () => number;
  /** By task id and owner, a pair that is different for each run of a task. */
  readonly #lost = new Map<string, LostRun>();

  constructor(components: LostRemoteRunsComponents, now: () => number = () => performance.now()) {
    this.#components = components;
    this.#now = now;
  }

  /** Queries the servers of these runs, and forgets all others. Returns ids of the tasks that may still run. */
  findRunning(runs: readonly RemoteRun[]): ReadonlySet<string> {
    const keys = new Set(runs.map(keyOf));
    for (const key of this.#lost.keys()) if (!keys.has(key)) this.#lost.delete(key);
    for (const run of runs) {
      if (!this.#lost.has(keyOf(run))) this.#add(run);
    }
    for (const lost of this.#lost.values()) this.#giveUpIfSilent(lost);
    this.#queryDue();
    const running = [...this.#lost.values()].filter(({ isGone }) => !isGone);
    return new Set(running.map(({ run }) => run.id));
  }

  get pauseMs(): number {
    const waiting = [...this.#lost.values()].filter((lost) => !lost.isQuerying && !lost.isGone);
    const nearest = Math.min(...waiting.map(({ queryAt }) => queryAt));
    return Math.max(0, nearest - this.#now());
  }

  #add(run: RemoteRun): void {
    const now = this.#now();
    this.#lost.set(keyOf(run), {
      run,
      answeredAt: now,
      queryAt: now,
      pauseMs: remoteQueryMs.first,
      isQuerying: false,
      isSilent: false,
      isGone: false,
    });
    this.#components.log.info({ id: run.id }, "remote task may still run, asking its server");
  }

  #giveUpIfSilent(lost: LostRun): void {
    if (lost.isGone || !lost.isSilent || this.#now() - lost.answeredAt < this.#components.resetMs) return;
    lost.isGone = true;
    this.#components.log.warn({ id: lost.run.id }, "state of a remote task unknown, it may run twice");
  }

  #queryDue(): void {
    const all = [...this.#lost.values()];
    const free = maxConcurrent - all.filter(({ isQuerying }) => isQuerying).length;
    const due = all.filter((lost) => !lost.isQuerying && !lost.isGone && lost.queryAt <= this.#now());
    for (const lost of due.slice(0, free)) void this.#query(lost);
  }

  async #query(lost: LostRun): Promise<void> {
    lost.isQuerying = true;
    const isGone = await this.#components.executors.findRemoteProcess(lost.run);
    lost.isQuerying = false;
    lost.isSilent = isGone === null;
    if (!lost.isSilent) lost.answeredAt = this.#now();
    lost.queryAt = this.#now() + lost.pauseMs;
    lost.pauseMs = Math.min(2 * lost.pauseMs, remoteQueryMs.max);
    if (isGone !== true) return;
    lost.isGone = true;
    this.#components.wakeSignal.notify();
  }
}

const keyOf = ({ id, owner }: RemoteRun): string => `${id} ${owner}`;
