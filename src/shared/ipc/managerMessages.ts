import type { Entry, TableLocation } from "../config/types.js";
import type { ConnectionTarget } from "../postgres/target/target.js";
import type { ErrorReport } from "../errors.js";
import type { Stall, ManagerStatistics } from "../statistics.js";
import type { Handover } from "./handshake.js";
import type { ManagerMemory, Rest, SleepingTable } from "./sleepingTable.js";

/** Contains secrets. */
export interface Administrator {
  /** Makes the logins of roles, whose passwords are derived from the secret. */
  readonly target: ConnectionTarget;
  readonly secret: string;
}

export interface ManagerParameters {
  readonly entry: Entry;
  /** An earlier manager may have left claimed tasks behind. */
  readonly takesOver: boolean;
  /** The more there are, the less often each of them does what can wait. */
  readonly managers: number;
  /** The leader before this process was frozen, and so are its managers. */
  readonly afterFrozen?: boolean;
  /** Only if the entry has users. */
  readonly administrator?: Administrator | null;
  /** What the table's last manager knew when it fell asleep. Null if it may not be true any more. */
  readonly memory?: ManagerMemory | null;
  /** Whether to fall asleep after the first check that finds nothing to do, unless there were tasks before. */
  readonly sleepsAtOnce?: boolean;
  /** Whether to fall asleep after any check that finds nothing to do, because other tables wait for threads. */
  readonly staysBriefly?: boolean;
}

/** What tables are examined for, all with the same target. */
export interface ExaminedEntries {
  readonly entries: readonly Entry[];
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
  /** The table is watched: the manager ends if there is still nothing to do. Answers `sleepOffered`. */
  | { readonly type: "sleep" }
  | { readonly type: "stop"; readonly graceMs: number }
  /** Without a manager: which tables could sleep, as far as the catalogue tells? Answered by `examined`. */
  | ({ readonly type: "examine"; readonly number: number } & Handover)
  /** The tables at these places are watched: which of them have nothing to do? Answered by `checked`, which ends it. */
  | { readonly type: "check"; readonly number: number; readonly places: readonly number[] };

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
  /** The manager has nothing to do for long, and could end if somebody watched its table. */
  | { readonly type: "sleepOffered"; readonly table: SleepingTable }
  /** There is something to do again, so the offer does not stand any longer. */
  | { readonly type: "sleepWithdrawn" }
  /** Counts since the last message. Not sent while nothing happens. */
  | ({ readonly type: "statistics" } & ManagerStatistics)
  /** Null means that the stall is over. */
  | { readonly type: "stalled"; readonly stall: Stall | null }
  /** Why none can be opened while none is open. Null: one has been opened again. */
  | { readonly type: "sessionsRefused"; readonly reason: ErrorReport | null }
  | { readonly type: "log"; readonly line: string }
  | { readonly type: "heartbeat" }
  /** For each entry, what to watch of its table. Null: it needs a manager. */
  | { readonly type: "examined"; readonly number: number; readonly tables: readonly (SleepingTable | null)[] }
  /** For each place, how long the table has nothing to do. Null: it needs a manager. */
  | { readonly type: "checked"; readonly number: number; readonly rests: readonly (Rest | null)[] }
  /** If `reason` is null, the manager was asked to stop. If it ended to sleep, `memory` is for the next one. */
  | { readonly type: "stopped"; readonly reason: ErrorReport | null; readonly memory: ManagerMemory | null };
