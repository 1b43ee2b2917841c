import type { Stall } from "./stall.js";
import type { Durations, TaskCounts } from "./statistics.js";

/**
 * What this process is in its cluster: `seeking` while it has no connection to find out,
 * `stopping` from the moment it was told to.
 */
export type ClusterRole = "seeking" | "leader" | "standby" | "stopping";

/** A manager of this process. */
export interface ManagerView {
  readonly state: "starting" | "working" | "waiting";
  /** When it came to be in this state. */
  readonly since: Date;
  /** Why it waits. */
  readonly reason: string | null;
  /** What is due and not taken though nothing keeps it from starting; null when there is nothing like that. */
  readonly stalled: Stall | null;
  /** Tasks that run now, and sessions that are open. */
  readonly running: number;
  readonly sessions: number;
  /** Since this process leads. */
  readonly counts: TaskCounts;
  readonly claims: Durations;
  readonly runs: Durations;
}

/** What is known in this process of the cluster and its own managers. */
export interface ClusterView {
  readonly role: ClusterRole;
  /** It stands by, or leads and every manager has served or said why it waits. */
  readonly ready: boolean;
  /** When it came to have this role. */
  readonly since: Date;
  /** The manager of an entry by its key; null when none works here. */
  manager(key: string): ManagerView | null;
  on(event: "changed", listener: () => void): unknown;
  on(event: "worked", listener: (key: string) => void): unknown;
  off(event: "changed", listener: () => void): unknown;
  off(event: "worked", listener: (key: string) => void): unknown;
}
