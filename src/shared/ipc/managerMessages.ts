import type { Entry, TableLocation } from "../config/types.js";
import type { ErrorReport } from "../errors.js";
import type { Stall, ManagerStatistics } from "../statistics.js";
import type { Handover } from "./handshake.js";

/** Payload of the messages `start` and `reconfigure`. */
export interface ManagerParameters {
  readonly entry: Entry;
  /** Whether an earlier manager may have left claimed tasks behind. */
  readonly takesOver: boolean;
  /** How many managers the process has. The more there are, the less often each of them does what can wait. */
  readonly managers: number;
  /** Whether the leader before this process was frozen, so that its managers are frozen as well. */
  readonly afterFrozen?: boolean;
}

export type ToManager =
  | ({ readonly type: "start" } & Handover)
  /** The entry's parameters have changed, or the server's settings may have changed. The connection target has not. */
  | ({ readonly type: "reconfigure" } & Handover)
  /**
   * Sets the session grant, the number of sessions that the manager may hold from now on. Answered by `grantAnswered`.
   */
  | { readonly type: "grant"; readonly sessions: number; readonly number: number }
  /** The server accepts connections again. A manager that is waiting to reconnect retries at once. */
  | { readonly type: "retryNow" }
  /** Another manager has lost its connection to the same server. This manager probes its own connection at once. */
  | { readonly type: "probe" }
  /** Asks a thread that was busy whether its event loop is running. Answered by `heartbeat`. */
  | { readonly type: "heartbeat" }
  | { readonly type: "stop"; readonly graceMs: number };

export type FromManager =
  /** The table exists, the manager holds its lock, and wake-ups arrive. */
  | { readonly type: "ready" }
  /** The manager has lost its connection or its lock and is retrying. Sent after every failed attempt. */
  | { readonly type: "unavailable"; readonly reason: ErrorReport }
  /** The number of sessions that the manager could use now. */
  | { readonly type: "demand"; readonly sessions: number }
  /** The server has capacity for only `capacity` more sessions, which is fewer than the manager wanted to open. */
  | { readonly type: "serverFull"; readonly capacity: number }
  /**
   * Answers the `grant` message with this `number`. Sessions beyond the grant are closed, and the manager now holds
   * `sessions` sessions.
   */
  | { readonly type: "grantAnswered"; readonly sessions: number; readonly number: number }
  /** The configuration of the role, database or server now names another table. A new manager must replace this one. */
  | { readonly type: "tableMoved"; readonly location: TableLocation }
  /** The manager is stopping and claims no more tasks, so another process may lead. */
  | { readonly type: "claimingStopped" }
  /** The manager has tried to apply the new parameters. If the attempt failed, the manager retries. */
  | { readonly type: "reconfigured" }
  /** Counts since the last `statistics` message. Not sent while nothing happens. */
  | ({ readonly type: "statistics" } & ManagerStatistics)
  /** A stall: due tasks do not start although nothing prevents it. Null means that the stall is over. */
  | { readonly type: "stalled"; readonly stall: Stall | null }
  /** Why no session can be opened while none is open. Null means that a session has been opened again. */
  | { readonly type: "sessionsRefused"; readonly reason: ErrorReport | null }
  | { readonly type: "log"; readonly line: string }
  /** Answers the `heartbeat` message. */
  | { readonly type: "heartbeat" }
  /** The manager has ended. If `reason` is null, it was asked to stop. */
  | { readonly type: "stopped"; readonly reason: ErrorReport | null };
