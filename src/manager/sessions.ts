import type { PgTaskError } from "../shared/errors.js";
import type { Log } from "../shared/log.js";
import type { BackendIdentity, Run, RunResult } from "../shared/messages.js";
import type { Executors, ExecutorThread, SessionMessage } from "./executors.js";
import type { Groups } from "./groups.js";
import { mayBeUndone } from "./outbox.js";
import { elapsedMs, type RunTimes } from "./runTimes.js";
import {
  keptFurther,
  keptNow,
  type AssignedRun,
  type Cancellation,
  type OfferedSession,
  type RoomySession,
  type Session,
  type SessionEvents,
  type SessionState,
} from "./session.js";
import { SessionQueue, type Held } from "./sessionQueue.js";
import type { OwnedTask } from "./sql/giveBack.js";
import { slowMs, SlowFronts } from "./slowFronts.js";

/** Most tasks are of it, where groups are not used. */
const defaultGroup = "group";
/** How many sessions share a thread before another one is started. */
const sessionsPerThread = 16;

/** The executor sessions of one manager: which there are, and what each does. */
export class Sessions {
  readonly #executors: Executors;
  readonly #events: SessionEvents;
  readonly #log: Log;
  readonly #maxThreads: () => number;
  readonly #groups: Groups;
  readonly #runTimes: RunTimes;
  readonly #sessions = new Map<number, Session>();
  /** Which session has a task. */
  readonly #byTask = new Map<string, Session>();
  readonly #byOwner = new Map<string, number>();
  readonly #counts = { opening: 0, free: 0, offered: 0, busy: 0, closing: 0, gone: 0 };
  #numbers = 0;
  /** What was run last tells what will be run next. */
  #lastGroup = defaultGroup;
  readonly #fronts: SlowFronts;

  constructor(options: {
    readonly executors: Executors;
    readonly groups: Groups;
    readonly runTimes: RunTimes;
    /** How many threads there may be when one more is thought of. */
    readonly maxThreads: () => number;
    readonly events: SessionEvents;
    readonly log: Log;
  }) {
    this.#executors = options.executors;
    this.#groups = options.groups;
    this.#runTimes = options.runTimes;
    this.#maxThreads = options.maxThreads;
    this.#events = options.events;
    this.#log = options.log;
    this.#fronts = new SlowFronts(this.#sessions, options);
  }

  get size(): number {
    return this.#sessions.size;
  }

  get opening(): number {
    return this.#counts.opening;
  }

  get closing(): number {
    return this.#counts.closing;
  }

  get busy(): number {
    return this.#counts.busy;
  }

  get free(): number {
    return this.#counts.free;
  }

  /** The session of that owner's text, -1 when it is gone. */
  numberOf(owner: string): number {
    return this.#byOwner.get(owner) ?? -1;
  }

  /** How many tasks they have. */
  get tasks(): number {
    return this.#byTask.size;
  }

  /** Whether a session has the task now. */
  runs(id: string): boolean {
    return this.#byTask.has(id);
  }

  /** The owners' texts of all sessions. */
  owners(): string[] {
    return [...this.#byOwner.keys()];
  }

  open(count: number): void {
    const opened = new Map<ExecutorThread, number[]>();
    for (let each = 0; each < count; each += 1) {
      const thread = this.#threadForOneMore();
      const number = (this.#numbers += 1);
      const session = {
        number,
        thread,
        backend: null,
        slow: false,
        recalls: 0,
        stuck: false,
        distrusted: false,
        kept: null,
      };
      const queue = new SessionQueue();
      this.#sessions.set(number, { ...session, queue, state: "opening" });
      this.#counts.opening += 1;
      opened.set(thread, [...(opened.get(thread) ?? []), number]);
    }
    for (const [thread, sessions] of opened)
      this.#executors.tell(thread, { type: "open", sessions, group: this.#lastGroup });
  }

  /** Takes up to `count` free sessions for a claim: each is then assigned or withdrawn. */
  offer(count: number): OfferedSession[] {
    const offered: OfferedSession[] = [];
    if (this.#counts.free === 0) return offered;
    for (const session of this.#sessions.values()) {
      if (offered.length >= count) break;
      if (session.state !== "free" || session.backend === null) continue;
      this.#become(session, "offered");
      const { number, backend } = session;
      offered.push({ ...backend, number, kept: keptNow(session, backend) });
    }
    return offered;
  }

  /** How many are held up by a run that takes long. */
  get stuck(): number {
    let count = 0;
    for (const { stuck } of this.#sessions.values()) if (stuck) count += 1;
    return count;
  }

  /** The busy sessions that may get more than they have, the least busy first. */
  roomy(): RoomySession[] {
    const roomy: RoomySession[] = [];
    for (const { number, state, backend, queue, slow, recalls } of this.#sessions.values()) {
      if (state !== "busy" || backend === null || slow || recalls > 0) continue;
      if (queue.front?.alone === true) continue;
      roomy.push({ ...backend, number, aheadMs: queue.expectedMs, groups: [...queue.groups] });
    }
    return roomy.toSorted((a, b) => a.aheadMs - b.aheadMs);
  }

  /** Takes offered sessions back: there was no claim. */
  withdraw(offered: readonly OfferedSession[]): void {
    for (const { number } of offered) {
      const session = this.#sessions.get(number);
      if (session?.state === "offered") this.#become(session, "free");
    }
  }

  /** Takes back what a claim left over; a session that its group has nothing for ends. */
  settle(offered: readonly OfferedSession[]): void {
    for (const { number } of offered) {
      const session = this.#sessions.get(number);
      if (session?.state !== "offered") continue;
      this.#become(session, "free");
      if (session.kept !== null) this.#close(session);
    }
  }

  /**
   * Gives runs to sessions, behind what they have; those of one thread cross to it together.
   *
   * @returns runs whose session ended meanwhile.
   */
  assign(runs: readonly AssignedRun[]): AssignedRun[] {
    const batches = new Map<ExecutorThread, Run[]>();
    const missed: AssignedRun[] = [];
    for (const assigned of runs) {
      const { task, shown } = assigned;
      const { id, hash, max, alone, pauses, repeats, keep } = task;
      const session = this.#sessions.get(assigned.session);
      if (session === undefined || !["free", "offered", "busy"].includes(session.state)) {
        missed.push(assigned);
        continue;
      }
      // It would start before what is on its way back, or wait behind what takes long after all.
      if ((session.recalls > 0 || session.slow) && session.queue.size > 0) {
        missed.push(assigned);
        continue;
      }
      this.#lastGroup = task.group;
      const expectedMs = this.#runTimes.expected(hash) ?? slowMs;
      const plain = !pauses && !repeats;
      this.#hold(session, { id, hash, max, alone, pauses, plain, expectedMs, shown });
      session.kept = keep ? keptFurther(session, hash) : null;
      const run = toRun(assigned);
      const batch = batches.get(session.thread);
      if (batch === undefined) batches.set(session.thread, [run]);
      else batch.push(run);
    }
    for (const [thread, batch] of batches) this.#executors.dispatch(thread, batch);
    this.#fronts.watch();
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
    this.#become(session, "closing");
    this.#executors.tell(session.thread, { type: "close", sessions: [session.number] });
  }

  /** What runs now, and what waits behind it. */
  running(): OwnedTask[] {
    return [...this.#sessions.values()].flatMap(({ queue, backend }) =>
      backend === null ? [] : queue.all.map(({ id }) => ({ id, owner: backend.owner })),
    );
  }

  /** Cancels a run that is not wanted any more. */
  cancel(id: string): void {
    const session = this.#byTask.get(id);
    if (session === undefined) return;
    for (const held of session.queue.all) if (held.id === id) held.plain = false;
    this.#executors.tell(session.thread, { type: "cancel", session: session.number, id });
  }

  /** Ends sessions at once, by their owners' texts: what they run is lost. */
  drop(owners: readonly string[]): void {
    for (const { number, thread, backend } of this.#sessions.values()) {
      if (backend === null || !owners.includes(backend.owner)) continue;
      this.#executors.tell(thread, { type: "drop", sessions: [number] });
    }
  }

  /**
   * The server processes of these are gone, of which they do not know yet: what they say to have
   * committed is decided by the ledger.
   */
  distrust(owners: readonly string[]): void {
    for (const owner of owners) {
      const session = this.#sessions.get(this.numberOf(owner));
      if (session !== undefined) session.distrusted = true;
    }
  }

  /** Has the threads of these sessions say for how long nothing has come of them. */
  listen(owners: readonly string[]): void {
    for (const owner of owners) {
      const session = this.#sessions.get(this.numberOf(owner));
      if (session === undefined) continue;
      this.#executors.tell(session.thread, { type: "listen", sessions: [session.number] });
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
        this.#gone(message.session);
        this.#events.unopened(message.reason.message);
        break;
      case "results":
        this.#results(message.results);
        return;
      case "cancel":
        this.#cancel(thread, message.session, message.id);
        break;
      case "started":
        this.#started(message.session, message.id, message.start);
        break;
      case "recalled":
        for (const number of message.sessions) {
          const session = this.#sessions.get(number);
          if (session !== undefined) session.recalls -= 1;
        }
        break;
      case "silent": {
        const backend = this.#sessions.get(message.session)?.backend;
        if (backend !== null && backend !== undefined)
          this.#events.silent(backend.owner, message.ms);
        return;
      }
      case "remote":
        this.#remote(message.session, message.id, message.pid);
        break;
      case "lost":
        this.#log.warn(
          {
            session: message.session,
            id: this.#sessions.get(message.session)?.queue.front?.id,
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
    this.#events.changed(true);
  }

  threadEnded(thread: ExecutorThread, reason: PgTaskError | null): void {
    if (reason !== null) this.#log.error({ reason: reason.message }, "executor thread died");
    for (const session of this.#sessions.values()) {
      if (session.thread !== thread) continue;
      if (session.state === "opening" && reason !== null) this.#events.unopened(reason.message);
      this.#gone(session.number);
    }
    this.#events.changed(true);
  }

  #opened(number: number, backend: BackendIdentity): void {
    const session = this.#sessions.get(number);
    if (session === undefined) return;
    session.backend = backend;
    this.#byOwner.set(backend.owner, number);
    this.#become(session, "free");
    this.#events.opened();
  }

  #results(results: readonly RunResult[]): void {
    let urgent = false;
    for (const result of results) {
      const session = this.#sessions.get(result.session);
      if (session === undefined || session.backend === null) continue;
      this.#result(session, session.backend, result);
      urgent ||= result.outcome === "returned" || session.queue.expectedMs < this.#runTimes.lowMs;
    }
    this.#events.changed(urgent);
  }

  #result(session: Session, { owner }: BackendIdentity, result: RunResult): void {
    const held = this.#letGo(session, result.id);
    if (held === null) return;
    if (session.distrusted && result.outcome === "ended" && mayBeUndone(result)) {
      this.#events.lost({ id: held.id, hash: held.hash }, owner, false);
      return;
    }
    if (result.outcome === "ended" && result.stop !== null) {
      const ms = elapsedMs(result.start, result.stop);
      if (ms >= 0) this.#runTimes.add(held.hash, ms);
    }
    this.#events.result(result, owner, held);
  }

  #hold(session: Session, held: Held): void {
    const { queue } = session;
    this.#byTask.set(held.id, session);
    if (queue.size > 0) this.#groups.wait(held.hash, held.max);
    else {
      this.#become(session, "busy");
      this.#groups.occupy();
    }
    if (queue.add(held)) this.#groups.join(held.hash);
  }

  #letGo(session: Session, id: string): Held | null {
    const removed = session.queue.remove(id);
    if (removed === null) return null;
    const { held, front, lastOfGroup } = removed;
    this.#byTask.delete(id);
    const next = session.queue.front;
    if (!front) this.#groups.stir(held.hash);
    else if (next !== null) this.#groups.stir(next.hash);
    if (lastOfGroup) this.#groups.leave(held.hash);
    if (front) session.slow = session.stuck = false;
    if (next === null) {
      this.#groups.vacate();
      if (session.state === "busy") this.#become(session, "free");
    }
    return held;
  }

  #started(number: number, id: string, start: string): void {
    const session = this.#sessions.get(number);
    const front = session?.queue.front;
    if (session?.backend === null || session === undefined || front?.id !== id) return;
    front.shown = true;
    this.#events.started({ id, owner: session.backend.owner, start });
  }

  #remote(number: number, id: string, pid: number): void {
    const session = this.#sessions.get(number);
    if (session?.queue.front?.id !== id || session.backend === null) return;
    this.#events.remote({ id, owner: session.backend.owner, pid });
  }

  #cancel(thread: ExecutorThread, number: number, id: string): void {
    const session = this.#sessions.get(number);
    const pid = session?.queue.front?.id === id ? session.backend?.pid : undefined;
    if (pid !== undefined) this.#events.cancel({ session: number, id, pid });
    else this.#executors.tell(thread, { type: "cancelled", session: number, id });
  }

  #gone(number: number): void {
    const session = this.#sessions.get(number);
    if (session === undefined) return;
    this.#sessions.delete(number);
    if (session.backend !== null) this.#byOwner.delete(session.backend.owner);
    this.#counts[session.state] -= 1;
    session.state = "gone";
    for (const [place, { id }] of [...session.queue.all].entries()) {
      const held = this.#letGo(session, id);
      if (held === null || session.backend === null) continue;
      this.#events.lost({ id, hash: held.hash }, session.backend.owner, place === 0);
    }
  }

  #become(session: Session, state: SessionState): void {
    this.#counts[session.state] -= 1;
    this.#counts[state] += 1;
    session.state = state;
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

/** Each by its name: copying whole objects costs more than all the rest here. */
function toRun({ task, session, ledger }: AssignedRun): Run {
  const { id, input, group, timeoutMs, save, format, atomic, take, remote } = task;
  return { session, id, input, group, timeoutMs, save, format, atomic, take, ledger, remote };
}
