import type { MessagePort } from "node:worker_threads";
import type { ConnectionTarget, Entry, TableLocation } from "../config/types.js";
import type { ErrorReport } from "../errors.js";
import type { Stall } from "../stall.js";
import type { ManagerStatistics } from "../statistics.js";

/** Where a payload waits in the shared slots of a channel (see handshake/slots.ts). */
export interface SlotReference {
  readonly slot: number;
  readonly generation: number;
  /** The payload itself, when it is larger than a slot. */
  readonly overflow?: SharedArrayBuffer;
}

/** A server process that runs tasks for us; text made by the server, compared for equality only. */
export interface BackendIdentity {
  readonly pid: number;
  /** `PID BACKEND_START` as stored in the column `owner`. */
  readonly owner: string;
}

/** Where a remote task runs: the server as it was reached, and the process there. No secret. */
export interface RemoteProcess extends BackendIdentity {
  readonly host: string;
  /** An IP address, null for a socket in the folder `host`. */
  readonly address: string | null;
  readonly port: number;
}

// ── supervisor → manager ────────────────────────────────────────────────────────────────────────

/** What a manager thread is created with; everything else comes over its port. */
export interface ManagerThreadData {
  /** Memory of the handshake. */
  readonly buffer: SharedArrayBuffer;
  /** Where it beats (see heartbeat.ts). */
  readonly heart: SharedArrayBuffer;
}

/** Payload of the slots with which a manager starts and is reconfigured. */
export interface ManagerParameters {
  readonly entry: Entry;
  /** Whether a manager before it may have left tasks. */
  readonly takesOver: boolean;
}

export type ToManager =
  | ({ readonly type: "start" } & SlotReference)
  /** Its entry has other parameters now, or the server's settings may have changed; same target. */
  | ({ readonly type: "reconfigure" } & SlotReference)
  /** How many executor sessions the manager may hold from now on; `held` answers with its number. */
  | { readonly type: "grant"; readonly sessions: number; readonly number: number }
  /** Its server has just let somebody in: if it waits for that, it tries again at once. */
  | { readonly type: "retry" }
  | { readonly type: "stop"; readonly graceMs: number };

export type FromManager =
  /** The table is there, the lock is held, wake-ups are heard. */
  | { readonly type: "ready" }
  /**
   * It works no longer (connection or lock lost) and is on the way back by itself; comes with every
   * try that fails.
   */
  | { readonly type: "waiting"; readonly reason: ErrorReport }
  /** How many sessions it could use now. */
  | { readonly type: "demand"; readonly sessions: number }
  /** Its server has room for so many more sessions only, less than it wanted to open. */
  | { readonly type: "full"; readonly room: number }
  /** It has let go what the grant of that number took from it, and holds no more than this. */
  | { readonly type: "held"; readonly sessions: number; readonly number: number }
  /** Its role, database or server says that the tasks are there: another has to take its place. */
  | { readonly type: "moved"; readonly place: TableLocation }
  /** It was told to stop and claims nothing more: another process may lead. */
  | { readonly type: "released" }
  /** It goes by its new parameters as far as it can now. */
  | { readonly type: "reconfigured" }
  /** What it did since the last one; none while nothing happens. */
  | ({ readonly type: "statistics" } & ManagerStatistics)
  /** What is due and not taken though nothing keeps it from starting; null when that is over. */
  | { readonly type: "stalled"; readonly stall: Stall | null }
  | { readonly type: "log"; readonly line: string }
  /** It ended; without a reason because it was told to. */
  | { readonly type: "stopped"; readonly reason: ErrorReport | null };

// ── manager → executor ──────────────────────────────────────────────────────────────────────────

/** What the pool hands to an executor thread; everything else comes over the port. */
export interface ExecutorThreadData {
  readonly port: MessagePort;
  /** Memory of the handshake. */
  readonly buffer: SharedArrayBuffer;
}

/** Payload of the slots with which an executor starts and is reconfigured. */
export interface ExecutorParameters {
  readonly target: ConnectionTarget;
  readonly schema: string;
  readonly table: string;
  /** The function that enters a run into a ledger: quoted, with its schema. */
  readonly finish: string;
  /** The function that makes a session as new: quoted, with its schema. */
  readonly reset: string;
  /** The ledgers 1 and 2: quoted, with their schema. */
  readonly ledgers: readonly [string, string];
  /** Most output kept of one task, in bytes of UTF-8. */
  readonly outputLimit: number;
  /** Whether the target's user is superuser: others need a password of their own for remote tasks. */
  readonly superuser: boolean;
  /** How long a server is asked whether a remote task that was lost still runs there, in ms. */
  readonly resetMs: number;
}

/** How rows become text: the columns of the same names. */
export interface OutputFormat {
  readonly header: boolean;
  readonly string: boolean;
  /** One character each, or empty for none. */
  readonly delimiter: string;
  readonly quote: string;
  readonly escape: string;
  readonly null: string;
}

/** One execution of one task, for one session. */
export interface Run {
  readonly session: number;
  /** A bigint, as text. */
  readonly id: string;
  readonly input: string;
  readonly group: string;
  /** Allowed run time in ms, 0 is without limit. */
  readonly timeoutMs: number;
  /** Whether the session stays with its group for further runs, and one on another server with it. */
  readonly keep: boolean;
  /** Whether the session keeps its state for its next run. */
  readonly save: boolean;
  readonly format: OutputFormat;
  /** Whether its effect and the proof of it commit together, where its SQL can be wrapped. */
  readonly atomic: boolean;
  /** When it was claimed, in µs since 1970, as text: tells this run from others of its task. */
  readonly take: string;
  /** Which of the two ledgers the proof goes to. */
  readonly ledger: 1 | 2;
  /** Connection string of the database in which it runs; null is the session's own. Holds secrets. */
  readonly remote: string | null;
}

/** Runs of one session that are called back. */
export interface SessionRuns {
  readonly session: number;
  readonly ids: readonly string[];
  /** What they wait behind, if that is why: when it has ended by then nothing is recalled. Null for another reason. */
  readonly behind: string | null;
}

/** What one session has sent to the server and has not come out, in its order. */
export interface SentRuns extends SessionRuns {
  /** Null where nothing was recalled, since what they waited behind has ended. */
  readonly sent: readonly SentRun[] | null;
}

/** A run that has been sent to the server. */
export interface SentRun {
  readonly id: string;
  /** Second key of the advisory lock that it takes when it begins; the first one is its server process. */
  readonly lock: number;
}

/** Payload of a dispatch: several runs cross the thread boundary at once. */
export interface Dispatch {
  readonly runs: readonly Run[];
}

export type ToExecutor =
  | ({ readonly type: "start" } & SlotReference)
  /** The output limit and the level of its log are others from the next run on. */
  | ({ readonly type: "reconfigure" } & SlotReference)
  /** Opens sessions, which will most likely run tasks of this group. */
  | { readonly type: "open"; readonly sessions: readonly number[]; readonly group: string }
  | ({ readonly type: "dispatch" } & SlotReference)
  /** Cancels a run whose task somebody has deleted or set to another state. */
  | { readonly type: "cancel"; readonly session: number; readonly id: string }
  /**
   * Answers every `cancel`: pg_cancel_backend has returned, or could not be called. Until then the
   * session stays with that run.
   */
  | { readonly type: "cancelled"; readonly session: number; readonly id: string }
  /**
   * From now on this session sends runs behind others under this permit, with null not at all: the second key
   * of a lock; where nobody holds that the server does not begin them.
   */
  | { readonly type: "permit"; readonly session: number; readonly permit: number | null }
  /**
   * Returns those of these runs that have not been sent to the server: each comes back as `returned`. Those
   * that have been come back as well, unless they are run; a `recalled` of each session says what it has sent. They
   * send nothing more behind others before they get a permit.
   */
  | { readonly type: "recall"; readonly runs: readonly SessionRuns[] }
  /** Every large output that was handed over is written. */
  | { readonly type: "written" }
  /** Ends sessions, each once the runs dispatched to it have come out. */
  | { readonly type: "close"; readonly sessions: readonly number[] }
  /** Ends sessions at once, in the middle of a run too: their server says nothing any more. */
  | { readonly type: "drop"; readonly sessions: readonly number[] }
  /** Their server processes have nothing to do: `silent` says for how long nothing has come of them. */
  | { readonly type: "listen"; readonly sessions: readonly number[] }
  /** Please ask the server that `remote` names whether a task still runs there; `sought` answers. */
  | {
      readonly type: "seek";
      readonly number: number;
      /** A connection string. Holds secrets. */
      readonly remote: string;
      readonly place: RemoteProcess;
    }
  /** Answers `room`: whether that connection may be opened; if so, `entered` has to follow. */
  | { readonly type: "room"; readonly number: number; readonly room: boolean }
  /** Cancels what runs: every unfinished run comes back as `returned`. */
  | { readonly type: "abort" }
  /** Ends all sessions, then the thread's work. */
  | { readonly type: "stop" };

/** What a run may have done to its session, however it came out. */
interface SessionCondition {
  readonly session: number;
  /** Something of the run is left that no reset takes away: nothing more is run there. */
  readonly spoiled?: boolean | undefined;
  /** Something that pg-task made beside the table was missing. */
  readonly lacking?: boolean | undefined;
}

/** How a run came out. Times are the database's, as ISO 8601 text in UTC with microseconds. */
export type RunResult =
  | (SessionCondition & {
      readonly outcome: "ended";
      readonly id: string;
      readonly start: string;
      /** Null when the connection was lost between the end of the run and its clock being read. */
      readonly stop: string | null;
      readonly output: string | null;
      /** The output as UTF-8 instead, where it is large. */
      readonly large?: Uint8Array<ArrayBuffer>;
      /** Null when it ran without error. */
      readonly error: string | null;
      /** Its effect was committed while its row said that it runs: a stop that is there now came later. */
      readonly committed: boolean;
      /** Its commit has waited for no flush, and no ledger will tell whether a crash of the server undid it. */
      readonly unflushed?: boolean | undefined;
    })
  /** Not run, or cancelled on our own account and rolled back: back to PLAN. */
  | (SessionCondition & {
      readonly outcome: "returned";
      readonly id: string;
      /** Whether it came back since the manager's own server has no room for its connection. */
      readonly crowded?: boolean;
    });

export type FromExecutor =
  /** The first message of a thread. */
  | { readonly type: "hello"; readonly threadId: number }
  | { readonly type: "opened"; readonly session: number; readonly backend: BackendIdentity }
  | { readonly type: "unopened"; readonly session: number; readonly reason: ErrorReport }
  /**
   * Runs that came out; their sessions are reset and free for the next ones. One with a large output
   * comes by itself, and the next such of this thread when `written` has answered.
   */
  | { readonly type: "results"; readonly results: readonly RunResult[] }
  /**
   * Please cancel what this session's backend runs, and answer `cancelled`. Comes again for as long
   * as the run withstands.
   */
  | { readonly type: "cancel"; readonly session: number; readonly id: string }
  /** A run that waited behind another has been under way for 50 ms. */
  | {
      readonly type: "started";
      readonly session: number;
      readonly id: string;
      readonly start: string;
    }
  /** A remote task runs in this process of its own server, and its row, which somebody has locked, does not say so. */
  | {
      readonly type: "remote";
      readonly session: number;
      readonly id: string;
      readonly pid: number;
    }
  /** Answers `listen`: this session awaits an answer of its server, and nothing has come for `ms`. */
  | { readonly type: "silent"; readonly session: number; readonly ms: number }
  /** Answers `seek`: whether the process is gone, null when that is not to be known. */
  | { readonly type: "sought"; readonly number: number; readonly gone: boolean | null }
  /** Please keep room on the manager's own server for one connection of a remote task; `room` answers. */
  | { readonly type: "room"; readonly number: number }
  /** That connection is open, or was not opened: nothing has to be kept for it any more. */
  | { readonly type: "entered"; readonly number: number; readonly open: boolean }
  /** Answers every `recall` for each of its sessions, and says what that has sent; what it returned has been told before. */
  | ({ readonly type: "recalled" } & SentRuns)
  /** The connection is gone; what it ran, if anything, has to be rescued. */
  | { readonly type: "lost"; readonly session: number; readonly reason: ErrorReport }
  | { readonly type: "closed"; readonly session: number }
  | LogEntry;

/** Something for the log, with what it is about. */
export interface LogEntry {
  readonly type: "log";
  readonly level: "debug" | "warn";
  readonly fields: Readonly<Record<string, string | number>>;
  readonly message: string;
}
