import type { PgTaskError } from "../shared/errors.js";
import type { Log } from "../shared/log.js";
import type { BackendIdentity, Run, RunResult } from "../shared/messages.js";
import type { FreeSession, KeptSession } from "./sql/claim.js";
import type { OwnedTask } from "./sql/giveBack.js";
import type { Executors, ExecutorThread, SessionMessage } from "./executors.js";
import type { RemotePid } from "./sql/remotePid.js";

/** How many sessions share a thread before another one is started. */
const sessionsPerThread = 16;

/**
 *   opening ──opened──▶ free ◀──────result── busy
 *      │                 │ ▲                  ▲
 *      │            offer│ │withdraw          │
 *      │                 ▼ │                  │
 *      │              offered ──────assign────┘
 *      ▼
 *    gone ◀── any state, when closed, lost, or its thread ended
 */
interface Session {
  readonly number: number;
  readonly thread: ExecutorThread;
  state: "opening" | "free" | "offered" | "busy" | "closing";
  backend: BackendIdentity | null;
  run: { readonly id: string; readonly hash: number } | null;
  /** Set while it stays with a group for tasks with count or live. */
  kept: { readonly hash: number; ran: number; readonly sinceMs: number } | null;
}

/** A run for a session; with `keep` the session stays with its group. */
export interface AssignedRun extends Run {
  readonly hash: number;
  readonly keep: boolean;
}

/** A session that a claim may use. */
export interface OfferedSession extends FreeSession {
  readonly number: number;
}

export interface SessionEvents {
  /** A session is free, or is no more: there may be something to do. */
  changed(): void;
  result(result: RunResult, owner: string, hash: number): void;
  /** A remote task runs in a process of its own server. */
  remote(place: RemotePid): void;
  /** A session ended in the middle of a run. */
  lost(run: { readonly id: string; readonly hash: number }, owner: string): void;
  opened(): void;
  unopened(reason: string): void;
  /** What the session runs is to be cancelled; `cancelled` has to follow. */
  cancel(cancellation: Cancellation): void;
}

/** What is to be cancelled. */
export interface Cancellation {
  readonly session: number;
  readonly id: string;
  readonly pid: number;
}

/** The executor sessions of one manager: which there are, and what each does. */
export class Sessions {
  readonly #executors: Executors;
  readonly #events: SessionEvents;
  readonly #log: Log;
  readonly #maxThreads: () => number;
  readonly #sessions = new Map<number, Session>();
  #numbers = 0;

  constructor(options: {
    readonly executors: Executors;
    /** How many threads there may be when one more is thought of. */
    readonly maxThreads: () => number;
    readonly events: SessionEvents;
    readonly log: Log;
  }) {
    this.#executors = options.executors;
    this.#maxThreads = options.maxThreads;
    this.#events = options.events;
    this.#log = options.log;
  }

  get size(): number {
    return this.#sessions.size;
  }

  get opening(): number {
    return this.#count("opening");
  }

  get closing(): number {
    return this.#count("closing");
  }

  get busy(): number {
    return this.#count("busy");
  }

  /** Whether a session has the task now. */
  runs(id: string): boolean {
    return [...this.#sessions.values()].some((session) => session.run?.id === id);
  }

  /** The owners' texts of all sessions. */
  owners(): string[] {
    return [...this.#sessions.values()].flatMap((session) => session.backend?.owner ?? []);
  }

  open(count: number): void {
    const opened = new Map<ExecutorThread, number[]>();
    for (let each = 0; each < count; each += 1) {
      const thread = this.#threadForOneMore();
      const number = (this.#numbers += 1);
      const session = { number, thread, backend: null, run: null, kept: null };
      this.#sessions.set(number, { ...session, state: "opening" });
      opened.set(thread, [...(opened.get(thread) ?? []), number]);
    }
    for (const [thread, sessions] of opened)
      this.#executors.tell(thread, { type: "open", sessions });
  }

  /** Takes up to `count` free sessions for a claim: each is then assigned or withdrawn. */
  offer(count: number): OfferedSession[] {
    const offered: OfferedSession[] = [];
    for (const session of this.#sessions.values()) {
      if (offered.length >= count) break;
      if (session.state !== "free" || session.backend === null) continue;
      session.state = "offered";
      const { number, backend } = session;
      offered.push({ ...backend, number, kept: keptNow(session) });
    }
    return offered;
  }

  /** Takes offered sessions back: there was no claim. */
  withdraw(offered: readonly OfferedSession[]): void {
    for (const { number } of offered) {
      const session = this.#sessions.get(number);
      if (session?.state === "offered") session.state = "free";
    }
  }

  /** Takes back what a claim left over; a session that its group has nothing for ends. */
  settle(offered: readonly OfferedSession[]): void {
    for (const { number } of offered) {
      const session = this.#sessions.get(number);
      if (session?.state !== "offered") continue;
      session.state = "free";
      if (session.kept !== null) this.#close(session);
    }
  }

  /**
   * Gives runs to offered sessions; those of one thread cross to it together.
   *
   * @returns runs whose session ended meanwhile.
   */
  assign(runs: readonly AssignedRun[]): Run[] {
    const batches = new Map<ExecutorThread, Run[]>();
    const missed: Run[] = [];
    for (const run of runs) {
      const session = this.#sessions.get(run.session);
      if (session?.state !== "offered") {
        missed.push(run);
        continue;
      }
      session.state = "busy";
      session.run = { id: run.id, hash: run.hash };
      session.kept = run.keep ? keptFurther(session, run.hash) : null;
      batches.set(session.thread, [...(batches.get(session.thread) ?? []), run]);
    }
    for (const [thread, batch] of batches) this.#executors.dispatch(thread, batch);
    return missed;
  }

  /** Ends up to `count` sessions that run nothing. */
  close(count = Infinity): void {
    let left = count;
    for (const session of this.#sessions.values()) {
      if (left <= 0) return;
      if (session.state !== "free") continue;
      left -= 1;
      this.#close(session);
    }
  }

  #close(session: Session): void {
    session.state = "closing";
    this.#executors.tell(session.thread, { type: "close", sessions: [session.number] });
  }

  /** What runs now. */
  running(): OwnedTask[] {
    return [...this.#sessions.values()].flatMap(({ run, backend }) =>
      run === null || backend === null ? [] : [{ id: run.id, owner: backend.owner }],
    );
  }

  /** Cancels a run that is not wanted any more. */
  cancel(id: string): void {
    for (const { number, thread, run } of this.#sessions.values()) {
      if (run?.id === id) this.#executors.tell(thread, { type: "cancel", session: number, id });
    }
  }

  /** Ends sessions at once, by their owners' texts: what they run is lost. */
  drop(owners: readonly string[]): void {
    for (const { number, thread, backend } of this.#sessions.values()) {
      if (backend === null || !owners.includes(backend.owner)) continue;
      this.#executors.tell(thread, { type: "drop", sessions: [number] });
    }
  }

  /** Cancels everything that runs, on our own account. */
  abort(): void {
    for (const thread of this.#executors.threads) this.#executors.tell(thread, { type: "abort" });
  }

  /** Tells a session that its backend has been sent the cancellation it asked for. */
  cancelled({ session: number, id }: Cancellation): void {
    const session = this.#sessions.get(number);
    if (session === undefined) return;
    this.#executors.tell(session.thread, { type: "cancelled", session: number, id });
  }

  receive(thread: ExecutorThread, message: SessionMessage): void {
    switch (message.type) {
      case "opened":
        this.#opened(message.session, message.backend);
        break;
      case "unopened":
        this.#sessions.delete(message.session);
        this.#events.unopened(message.reason.message);
        break;
      case "results":
        for (const result of message.results) this.#result(result);
        break;
      case "cancel":
        this.#cancel(thread, message.session, message.id);
        break;
      case "remote":
        this.#remote(message.session, message.id, message.pid);
        break;
      case "lost":
        this.#log.warn(
          {
            session: message.session,
            id: this.#sessions.get(message.session)?.run?.id,
            reason: message.reason.message,
          },
          "session lost",
        );
        this.#gone(message.session);
        break;
      case "closed":
        this.#gone(message.session);
        break;
    }
    this.#events.changed();
  }

  threadEnded(thread: ExecutorThread, reason: PgTaskError | null): void {
    if (reason !== null) this.#log.error({ reason: reason.message }, "executor thread died");
    for (const session of this.#sessions.values()) {
      if (session.thread !== thread) continue;
      if (session.state === "opening" && reason !== null) this.#events.unopened(reason.message);
      this.#gone(session.number);
    }
    this.#events.changed();
  }

  #opened(number: number, backend: BackendIdentity): void {
    const session = this.#sessions.get(number);
    if (session === undefined) return;
    session.backend = backend;
    session.state = "free";
    this.#events.opened();
  }

  #result(result: RunResult): void {
    const session = this.#sessions.get(result.session);
    if (session === undefined || session.backend === null || session.run?.id !== result.id) return;
    const { hash } = session.run;
    session.run = null;
    session.state = "free";
    this.#events.result(result, session.backend.owner, hash);
  }

  #remote(number: number, id: string, pid: number): void {
    const session = this.#sessions.get(number);
    if (session?.run?.id !== id || session.backend === null) return;
    this.#events.remote({ id, owner: session.backend.owner, pid });
  }

  #cancel(thread: ExecutorThread, number: number, id: string): void {
    const session = this.#sessions.get(number);
    const pid = session?.run?.id === id ? session.backend?.pid : undefined;
    if (pid !== undefined) this.#events.cancel({ session: number, id, pid });
    else this.#executors.tell(thread, { type: "cancelled", session: number, id });
  }

  #gone(number: number): void {
    const session = this.#sessions.get(number);
    if (session === undefined) return;
    this.#sessions.delete(number);
    if (session.run !== null && session.backend !== null) {
      this.#events.lost(session.run, session.backend.owner);
    }
  }

  #count(state: Session["state"]): number {
    let count = 0;
    for (const session of this.#sessions.values()) if (session.state === state) count += 1;
    return count;
  }

  #threadForOneMore(): ExecutorThread {
    const load = new Map([...this.#executors.threads].map((thread) => [thread, 0]));
    for (const { thread } of this.#sessions.values()) load.set(thread, (load.get(thread) ?? 0) + 1);
    const [least] = [...load].toSorted(([, a], [, b]) => a - b);
    const mayStart = load.size < this.#maxThreads();
    if (least === undefined || (least[1] >= sessionsPerThread && mayStart)) {
      return this.#executors.start();
    }
    return least[0];
  }
}

function keptNow({ kept }: Session): KeptSession | null {
  if (kept === null) return null;
  return { hash: kept.hash, ran: kept.ran, ageMs: performance.now() - kept.sinceMs };
}

function keptFurther({ kept }: Session, hash: number): NonNullable<Session["kept"]> {
  if (kept === null) return { hash, ran: 1, sinceMs: performance.now() };
  return { ...kept, ran: kept.ran + 1 };
}
