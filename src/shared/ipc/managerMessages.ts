import type { Entry, TableLocation } from "../config/types.js";
import type { ErrorReport } from "../errors.js";
import type { Stall, ManagerStatistics } from "../statistics.js";
import type { Handover } from "./handshake.js";

export interface ManagerParameters {
  readonly entry: Entry;
  /** An earlier manager may have left claimed tasks behind. */
  readonly takesOver: boolean;
  /** The more there are, the less often each of them does what can wait. */
  readonly managers: number;
  /** The leader before this process was frozen, and so are its managers. */
  readonly afterFrozen?: boolean;
}

export type ToManager =
  | ({ readonly type: "start" } & Handover)
  /** The parameters may have changed, the connection target has not. */
  | ({ readonly type: "reconfigure" } & Handover)
  /** How many sessions the manager may hold from now on. Answered by `grantAnswered`. */
  | { readonly type: "grant"; readonly sessions: number; readonly number: number }
  /** A manager that is waiting to reconnect retries at once. */
  | { readonly type: "retryNow" }
  /** Another manager has lost its connection to the same server: this one probes its own at once. */
  | { readonly type: "probe" }
  /** Is the event loop running? Answered by `heartbeat`. */
  | { readonly type: "heartbeat" }
  | { readonly type: "stop"; readonly graceMs: number };

export type FromManager =
  /** The table exists, the manager holds its lock, and wake-ups arrive. */
  | { readonly type: "ready" }
  /** The connection or lock is lost. Sent after every failed attempt. */
  | { readonly type: "unavailable"; readonly reason: ErrorReport }
  /** The number of sessions that the manager could use now. */
  | { readonly type: "demand"; readonly sessions: number }
  /** The server has room for only this many more sessions, fewer than the manager wanted. */
  | { readonly type: "serverFull"; readonly capacity: number }
  /** Sessions beyond the grant are closed, and the manager now holds `sessions`. */
  | { readonly type: "grantAnswered"; readonly sessions: number; readonly number: number }
  /** The settings of role, database or server now name another table: replace this manager. */
  | { readonly type: "tableMoved"; readonly location: TableLocation }
  /** No more tasks are claimed, so another process may lead. */
  | { readonly type: "claimingStopped" }
  /** Applying the new parameters was tried. If it failed, it is retried. */
  | { readonly type: "reconfigured" }
  /** Counts since the last message. Not sent while nothing happens. */
  | ({ readonly type: "statistics" } & ManagerStatistics)
  /** Null means that the stall is over. */
  | { readonly type: "stalled"; readonly stall: Stall | null }
  /** Why none can be opened while none is open. Null: one has been opened again. */
  | { readonly type: "sessionsRefused"; readonly reason: ErrorReport | null }
  | { readonly type: "log"; readonly line: string }
  | { readonly type: "heartbeat" }
  /** If `reason` is null, the manager was asked to stop. */
  | { readonly type: "stopped"; readonly reason: ErrorReport | null };
