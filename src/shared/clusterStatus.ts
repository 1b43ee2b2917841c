import type { ErrorReport } from "./errors.js";
import type { Stall, Durations, RetryCounts, TaskCounts } from "./statistics.js";

/**
 * Role of this process in its cluster. The role is `seeking` while the process has no control connection, and
 * `stopping` after a stop was requested.
 */
export type ClusterRole = "seeking" | "leader" | "standby" | "stopping";

/** A manager that runs in this process. */
export interface ManagerView {
  readonly state: "starting" | "working" | "waiting";
  /** When the manager entered its current state. */
  readonly since: Date;
  /** Why the manager is `waiting`; null in any other state. */
  readonly reason: Omit<ErrorReport, "sqlState"> | null;
  /** The stall (due tasks do not start although nothing prevents it); null if there is none. */
  readonly stalled: Stall | null;
  /** Why no session can be opened while none is open. Null if there are sessions, or none was needed. */
  readonly sessionsRefused: Omit<ErrorReport, "sqlState"> | null;
  /** Number of running tasks. */
  readonly running: number;
  /** Number of open sessions. */
  readonly sessions: number;
  /** Counters since this process became the leader. */
  readonly counts: TaskCounts;
  readonly retries: RetryCounts;
  readonly claims: Durations;
  readonly runs: Durations;
  readonly waits: Durations;
}

/** This process's view of the cluster and of its own managers. */
export interface ClusterView {
  readonly role: ClusterRole;
  /**
   * Whether this process is ready. A standby is always ready. A leader is ready once every manager has served its table
   * or has reported why the table cannot be served.
   */
  readonly ready: boolean;
  /** When this process took its current role. */
  readonly since: Date;
  /** Process id of the backend of the control connection. Null if there is no such connection, or its pid is unknown. */
  readonly controlPid: number | null;
  /** Returns the manager of the entry with this key, or null if this process runs no such manager. */
  manager(key: string): ManagerView | null;
  on(event: "changed", listener: () => void): unknown;
  on(event: "worked", listener: (key: string) => void): unknown;
  off(event: "changed", listener: () => void): unknown;
  off(event: "worked", listener: (key: string) => void): unknown;
}
