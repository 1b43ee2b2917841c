import type { Log } from "../../shared/log.js";
import type { WakeSignal } from "../../shared/wakeSignal.js";
import type { ExecutorThreads } from "../sessions/executorThreads.js";
import type { RemoteRun } from "./remoteRuns.sql.js";
import { remoteQueryMs } from "../model/tuning.js";

const maxConcurrent = 8;

interface LostRun {
  run: RemoteRun;
  answeredAt: number;
  queryAt: number;
  pauseMs: number;
  isQuerying: boolean;
  isSilent: boolean;
  isReported: boolean;
  end: "committed" | "gone" | null;
}

interface LostRemoteRunsComponents {
  readonly executors: Pick<ExecutorThreads, "findRemoteProcess">;
  readonly wakeSignal: Pick<WakeSignal, "notify">;
  /** How long a server may be silent before its runs are given up, in ms. */
  readonly resetMs: number;
  readonly log: Log;
}

/**
 * Remote runs whose local session is gone, but which may still be running on the remote server, or may be committed
 * there. The servers are queried in parallel, so that one that does not answer does not delay the others.
 *
 *   lost ──its server has said how it ended, or was silent for `reset`──▶ committed or gone
 *    ▲ │
 *    └─┘ it still runs, or the server does not answer
 *
 * A run with a proof there is not given up, because the proof always tells. Its task waits.
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

  /** Queries the servers of these runs, and forgets all others. Returns the ids of the tasks. */
  inspect(runs: readonly RemoteRun[]): {
    /** Those that may still run. */
    readonly running: ReadonlySet<string>;
    readonly committed: readonly string[];
  } {
    const keys = new Set(runs.map(keyOf));
    for (const key of this.#lost.keys()) if (!keys.has(key)) this.#lost.delete(key);
    for (const run of runs) {
      const lost = this.#lost.get(keyOf(run));
      if (lost === undefined) this.#add(run);
      else lost.run = run;
    }
    for (const lost of this.#lost.values()) this.#giveUpIfSilent(lost);
    this.#queryDue();
    const idsOf = (wanted: LostRun["end"]): string[] =>
      [...this.#lost.values()].flatMap(({ end, run }) => (end === wanted ? run.id : []));
    return { running: new Set(idsOf(null)), committed: idsOf("committed") };
  }

  get pauseMs(): number {
    const waiting = [...this.#lost.values()].filter((lost) => !lost.isQuerying && lost.end === null);
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
      isReported: false,
      end: null,
    });
    this.#components.log.info({ id: run.id }, "remote task may still run, asking its server");
  }

  #giveUpIfSilent(lost: LostRun): void {
    if (lost.end !== null || !lost.isSilent || this.#now() - lost.answeredAt < this.#components.resetMs) return;
    const { id, process, isRunning } = lost.run;
    if (process.proof !== undefined && isRunning) {
      if (!lost.isReported)
        this.#components.log.warn({ id }, "state of a remote task unknown, it waits for its server");
      lost.isReported = true;
      return;
    }
    lost.end = "gone";
    this.#components.log.warn({ id }, "state of a remote task unknown, it may run twice");
  }

  #queryDue(): void {
    const all = [...this.#lost.values()];
    const free = maxConcurrent - all.filter(({ isQuerying }) => isQuerying).length;
    const due = all.filter((lost) => !lost.isQuerying && lost.end === null && lost.queryAt <= this.#now());
    for (const lost of due.slice(0, free)) void this.#query(lost);
  }

  async #query(lost: LostRun): Promise<void> {
    lost.isQuerying = true;
    const state = await this.#components.executors.findRemoteProcess(lost.run);
    lost.isQuerying = false;
    lost.isSilent = state === null;
    if (!lost.isSilent) lost.answeredAt = this.#now();
    lost.queryAt = this.#now() + lost.pauseMs;
    lost.pauseMs = Math.min(2 * lost.pauseMs, remoteQueryMs.max);
    if (state === null || state === "running") return;
    lost.end = state;
    this.#components.wakeSignal.notify();
  }
}

const keyOf = ({ id, owner }: RemoteRun): string => `${id} ${owner}`;
