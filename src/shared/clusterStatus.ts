import type { ErrorReport } from "./errors.js";
import type { Stall, Durations, ManagerStatistics, RetryCounts, TaskCounts } from "./statistics.js";

/** `seeking` has no control connection, `stopping` was asked to stop. */
export type ClusterRole = "seeking" | "leader" | "standby" | "stopping";

export interface ManagerView {
  /** `sleeping`: there is nothing to do for long, and the table is only watched. */
  readonly state: "starting" | "working" | "sleeping" | "waiting";
  readonly since: Date;
  /** Why the manager is `waiting`; null in any other state. */
  readonly reason: Omit<ErrorReport, "sqlState"> | null;
  /** Due tasks do not start although nothing prevents it. */
  readonly stalled: Stall | null;
  /** Why no session can be opened while none is open. Null if there are sessions, or none was needed. */
  readonly sessionsRefused: Omit<ErrorReport, "sqlState"> | null;
  readonly running: number;
  readonly overruns: number;
  readonly sessions: number;
  readonly shares: ManagerStatistics["shares"];
  /** Counters since this process became the leader. */
  readonly counts: TaskCounts;
  readonly retries: RetryCounts;
  readonly webhooks: ManagerStatistics["webhooks"];
  readonly claims: Durations;
  readonly runs: Durations;
  readonly waits: Durations;
}

/** Whether a task that becomes due is run. */
export const isServed = (view: Pick<ManagerView, "state"> | null): boolean =>
  view?.state === "working" || view?.state === "sleeping";

export interface ClusterView {
  readonly role: ClusterRole;
  /** A standby is always ready. A leader is once every manager has served its table or reported why it cannot. */
  readonly ready: boolean;
  readonly since: Date;
  readonly controlPid: number | null;
  manager(key: string): ManagerView | null;
  /** Why nothing may connect to the database of the entry with this key. Null if it is not released for maintenance. */
  releasedReason(key: string): string | null;
  on(event: "changed" | "released", listener: () => void): unknown;
  on(event: "worked", listener: (key: string) => void): unknown;
  off(event: "changed", listener: () => void): unknown;
}
