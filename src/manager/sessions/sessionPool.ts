import { toReport, type PgTaskError } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type {
  BackendIdentity,
  Run,
  RunResult,
  SentRuns,
  SessionRuns,
} from "../../shared/ipc/messages.js";
import type { ExecutorThreads, ExecutorThread, SessionMessage } from "./executorThreads.js";
import { noLoad, type GroupLoad, type ActiveGroups } from "../groups/groups.js";
import { mayBeUndone } from "../results/pendingResults.js";
import { elapsedMs, type RunTimes } from "./runTimes.js";
import {
  keptFurther,
  keptLess,
  keptNow,
  type AssignedRun,
  type CancellationRequest,
  type OfferedSession,
  type QueueableSession,
  type SentRecall,
  type PooledSession,
  type SessionPoolEvents,
  type SessionState,
} from "./session.js";
import { SessionQueue, type QueuedTask } from "./sessionQueue.js";
import type { ClaimedTask } from "../claim/claimedTask.sql.js";
import type { OwnedTask } from "../results/releaseTasks.sql.js";
import { mayMove, slowMs, SlowFronts } from "./slowRunMonitor.js";

/** Most tasks are of it, where groups are not used. */
const defaultGroup = "group";
/** How many sessions share a thread before another one is started. */
const sessionsPerThread = 16;

/** What sessions have. */
export interface SessionPoolLoad {
  /** How many have something. */
  readonly busy: number;
  /** By the groups' hashes. */
  readonly groups: ReadonlyMap<number, GroupLoad>;
  /** Server processes of those that would take any task, and of those that have some of which none must be alone. */
  readonly free: readonly number[];
  readonly working: readonly number[];
  /** How many are in each state, and held up in which way. */
  readonly states: Readonly<Record<string, number>>;
}

/** The executor sessions of one manager: which there are, and what each does. */
export class SessionPool {
  readonly #executors: ExecutorThreads;
  readonly #events: SessionPoolEvents;
  readonly #log: Log;
  readonly #maxThreads: () => number;
  readonly #groups: ActiveGroups;
  readonly #runTimes: RunTimes;
  readonly #sessions = new Map<number, PooledSession>();
  /** Which session has a task. */
  readonly #byTask = new Map<string, PooledSession>();
  readonly #byOwner = new Map<string, number>();
  /** Tasks whose run failed since something of ours was missing, and that are run once more. */
  readonly #again = new Set<string>();
  /** Those that have not been told yet that they end; null as long as each is told at once. */
  #putOff: Set<PooledSession> | null = null;
  readonly #counts = { opening: 0, free: 0, offered: 0, busy: 0, closing: 0, gone: 0 };
  #numbers = 0;
  /** What was run last tells what will be run next. */
  #lastGroup = defaultGroup;
  readonly #fronts: SlowFronts;

  constructor(options: {
    readonly executors: ExecutorThreads;
    readonly groups: ActiveGroups;
    readonly runTimes: RunTimes;
    /** How many threads there may be when one more is thought of. */
    readonly maxThreads: () => number;
    /** Whether one more session may have something to do. */
    readonly mayUseMore: () => boolean;
    /** After how long what waits behind a run is called back, in ms; 50 unless told otherwise. */
    readonly slowMs?: number;
    readonly events: SessionPoolEvents;
    readonly log: Log;
  }) {
    this.#executors = options.executors;
    this.#groups = options.groups;
    this.#runTimes = options.runTimes;
    this.#maxThreads = options.maxThreads;
    this.#events = options.events;
    this.#log = options.log;
    this.#fronts = new SlowFronts(this.#sessions, {
      ...options,
      recall: (ids) => this.recall(ids, true),
    });
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

  /** Whether a free one had nothing to do in the last turn. */
  get anySpare(): boolean {
    if (this.#counts.free === 0) return false;
    return [...this.#sessions.values()].some(({ spare }) => spare);
  }

  /** A turn is over: what is free now is so since there was nothing for it. */
  markSpare(): void {
    if (this.#counts.free === 0) return;
    for (const session of this.#sessions.values()) session.spare = session.state === "free";
  }

  /** What they have, by their queues, for whoever checks what is counted of it. */
  get load(): SessionPoolLoad {
    const groups = new Map<number, GroupLoad>();
    const free: number[] = [];
    const working: number[] = [];
    const held = { slow: 0, recalling: 0, withholding: 0 };
    let busy = 0;
    for (const session of this.#sessions.values()) {
      const { state, backend, kept, queue, slow, recalls, withheld } = session;
      if (state === "free" && kept === null && backend !== null) free.push(backend.pid);
      const works = queue.current?.alone === false || withheld.size > 0;
      if (works && backend !== null) working.push(backend.pid);
      if (queue.size > 0) busy += 1;
      held.slow += slow ? 1 : 0;
      held.recalling += recalls > 0 ? 1 : 0;
      held.withholding += withheld.size > 0 ? 1 : 0;
      for (const hash of queue.groups) {
        const { sessions, ...rest } = groups.get(hash) ?? noLoad;
        groups.set(hash, { sessions: sessions + 1, ...rest });
      }
      for (const { hash, max } of queue.waiting) {
        const { sessions, waiting, least } = groups.get(hash) ?? noLoad;
        groups.set(hash, { sessions, waiting: waiting + 1, least: Math.min(least, max) });
      }
    }
    return { busy, groups, free, working, states: { ...this.#counts, ...held } };
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
        spare: false,
        slow: false,
        recalls: 0,
        permit: null,
        withheld: new Set<string>(),
        distrusted: false,
        stale: false,
        idleSinceMs: 0,
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
  get slow(): number {
    let count = 0;
    for (const { slow } of this.#sessions.values()) if (slow) count += 1;
    return count;
  }

  /** The busy sessions that may get more than they have, the least busy first. */
  roomy(): QueueableSession[] {
    const roomy: QueueableSession[] = [];
    for (const session of this.#sessions.values()) {
      const { number, state, backend, queue } = session;
      if (state !== "busy" || backend === null || isHeldUp(session)) continue;
      if (queue.current?.alone === true) continue;
      roomy.push({ ...backend, number, aheadMs: queue.expectedMs, groups: [...queue.groups] });
    }
    return roomy.toSorted((a, b) => a.aheadMs - b.aheadMs);
  }

  /** Takes offered sessions back: there was no claim. */
  withdraw(offered: readonly OfferedSession[]): void {
    for (const { number } of offered) {
      const session = this.#sessions.get(number);
      if (session?.state === "offered") this.#rest(session);
    }
  }

  /** Takes back what a claim left over; a session that its group has nothing for ends. */
  settle(offered: readonly OfferedSession[]): void {
    for (const { number } of offered) {
      const session = this.#sessions.get(number);
      if (session?.state !== "offered") continue;
      if (session.kept === null) this.#rest(session);
      else this.#close(session);
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
    const sinceMs = performance.now();
    for (const assigned of runs) {
      const { task, shown } = assigned;
      const { id, hash, max, alone, pauses, repeats, keep } = task;
      const session = this.#sessions.get(assigned.session);
      const takes = session !== undefined && ["free", "offered", "busy"].includes(session.state);
      if (!takes || session.stale) {
        missed.push(assigned);
        continue;
      }
      // It would start before what is on its way back, or wait behind what takes long after all.
      if (isHeldUp(session) && session.state === "busy") {
        missed.push(assigned);
        continue;
      }
      this.#lastGroup = task.group;
      const expectedMs = this.#runTimes.expected(hash) ?? slowMs;
      // Each by its name: copying whole objects costs more than all the rest here.
      this.#hold(session, {
        id,
        hash,
        max,
        alone,
        pauses,
        plain: !pauses && !repeats,
        shown,
        expectedMs,
        sinceMs,
        dueMs: sinceMs + session.queue.expectedMs,
        slow: false,
        recalled: false,
        task,
      });
      this.#wantPermit(session);
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

  /** Ends those that would take any task and have had none for `idleMs`; the last session of all stays. */
  closeIdle(idleMs: number): void {
    let left = this.size - this.#counts.closing;
    const latest = performance.now() - idleMs;
    for (const session of this.#sessions.values()) {
      if (left <= 1) return;
      if (session.state !== "free" || session.kept !== null || session.idleSinceMs > latest)
        continue;
      left -= 1;
      this.#close(session);
    }
  }

  /** All that are there began before something that new ones know: none of them runs anything more. */
  renew(): void {
    const waiting: string[] = [];
    for (const session of this.#sessions.values()) {
      session.stale = true;
      if (session.state === "free") this.#close(session);
      waiting.push(...session.queue.waiting.map(({ id }) => id));
    }
    this.recall(waiting, false);
  }

  /** From now on those that end are told so by `letEnd` only. */
  putOffEnds(): void {
    this.#putOff ??= new Set();
  }

  /** Tells those whose end was put off. */
  letEnd(): void {
    if (this.#putOff === null) return;
    for (const session of this.#putOff) this.#tellEnd(session);
    this.#putOff.clear();
  }

  /** Whether the session of that owner's text is there, and has not been told that it ends. */
  stays(owner: string): boolean {
    const session = this.#sessions.get(this.numberOf(owner));
    if (session === undefined) return false;
    return session.state !== "closing" || this.#putOff?.has(session) === true;
  }

  /** It runs nothing now. */
  #rest(session: PooledSession): void {
    if (session.stale) this.#close(session);
    else this.#become(session, "free");
  }

  #close(session: PooledSession): void {
    this.#become(session, "closing");
    if (this.#putOff === null) this.#tellEnd(session);
    else this.#putOff.add(session);
  }

  #tellEnd({ thread, number }: PooledSession): void {
    this.#executors.tell(thread, { type: "close", sessions: [number] });
  }

  /** What runs now. */
  running(): OwnedTask[] {
    return [...this.#sessions.values()].flatMap(({ queue: { current: front }, backend }) =>
      backend === null || front === null ? [] : [{ id: front.id, owner: backend.owner }],
    );
  }

  /** What is awaited of each session: the end of what runs, or word of a run that was withheld. */
  awaited(): OwnedTask[] {
    return [...this.#sessions.values()].flatMap(({ queue, withheld, backend }) => {
      const id = queue.current?.id ?? first(withheld);
      return backend === null || id === null ? [] : [{ id, owner: backend.owner }];
    });
  }

  /** What has waited behind what runs for at least this long, in ms, as it was claimed. */
  waiting(leastMs: number): ClaimedTask[] {
    const latest = performance.now() - leastMs;
    return [...this.#sessions.values()].flatMap(({ queue }) =>
      queue.waiting.flatMap(({ recalled, sinceMs, task }) =>
        recalled || sinceMs > latest ? [] : [task],
      ),
    );
  }

  /** Whether some that wait are called back, and it is not known yet whether they have begun. */
  get recalling(): boolean {
    return [...this.#sessions.values()].some(({ recalls }) => recalls > 0);
  }

  /** How many that wait could run in other sessions, as far as `most`. */
  countMovable(most: number): number {
    let count = 0;
    for (const { queue } of this.#sessions.values()) {
      const { current: front, waiting } = queue;
      for (const held of front === null ? [] : waiting) {
        if (count >= most) return count;
        if (front !== null && mayMove(held, front, this.#groups)) count += 1;
      }
    }
    return count;
  }

  /** Cancels a run that is not wanted any more. */
  cancel(id: string): void {
    const session = this.#byTask.get(id);
    if (session === undefined) return;
    for (const held of session.queue.all) if (held.id === id) held.plain = false;
    this.#executors.tell(session.thread, { type: "cancel", session: session.number, id });
  }

  /**
   * Calls back runs that have not begun, as far as is known: each comes out as returned unless it has.
   *
   * @param heldUp whether that is since others hold them up, so that they may stay when those have ended by now.
   */
  recall(ids: readonly string[], heldUp: boolean): void {
    const ofThreads = new Map<ExecutorThread, Map<PooledSession, string[]>>();
    for (const id of ids) {
      const session = this.#byTask.get(id);
      const held = session?.queue.waiting.find((each) => each.id === id);
      if (session === undefined || held === undefined || held.recalled) continue;
      held.recalled = true;
      const ofThread = ofThreads.get(session.thread) ?? new Map<PooledSession, string[]>();
      ofThreads.set(session.thread, ofThread);
      ofThread.set(session, [...(ofThread.get(session) ?? []), id]);
    }
    for (const [thread, sessions] of ofThreads) {
      for (const session of sessions.keys()) session.recalls += 1;
      const runs = [...sessions].map(([{ number, queue }, its]) => ({
        session: number,
        ids: its,
        behind: heldUp ? (queue.current?.id ?? null) : null,
      }));
      this.#executors.tell(thread, { type: "recall", runs });
    }
  }

  /** What has been sent of these runs stays where it is, and so does the session's permit. */
  leave(recall: Omit<SentRecall, "pid">): void {
    if (recall.permit !== null) this.permit(recall.session, recall.permit);
    this.withhold(recall, new Set());
  }

  /**
   * Settles a recall: takes back those of these runs that have not begun, since they were sent behind one that
   * runs, and cannot begin. The others stay.
   */
  withhold(recall: SessionRuns, behind: ReadonlySet<string>): void {
    const { session: number, ids } = recall;
    const session = this.#sessions.get(number);
    if (session === undefined || session.backend === null) return;
    session.recalls -= 1;
    const waiting = new Map(session.queue.waiting.map((held) => [held.id, held]));
    for (const id of ids) {
      const held = waiting.get(id);
      if (held === undefined) continue;
      held.recalled = false;
      if (!behind.has(id)) continue;
      session.withheld.add(id);
      this.#letGo(session, id);
      const result = { outcome: "returned" as const, session: number, id };
      this.#events.result(result, session.backend.owner, held);
    }
    // What may stay since nothing holds it up any more is not to run in a session that is to run nothing more.
    if (session.stale && recall.behind !== null) this.recall(ids, false);
    this.#wantPermit(session);
  }

  /** A session may send runs behind others under this permit, null for none, unless it has one by now. */
  permit(number: number, permit: number | null): void {
    const session = this.#sessions.get(number);
    const other = typeof session?.permit === "number" && session.permit !== permit;
    if (session !== undefined && !other) {
      session.permit = permit;
      this.#executors.tell(session.thread, { type: "permit", session: number, permit });
    } else if (permit !== null) this.#events.revoke(permit);
  }

  /** The session sends nothing more under the permit that it has; null when it has none. */
  giveUpPermit(number: number): number | null {
    const session = this.#sessions.get(number);
    const permit = session?.permit ?? null;
    if (session === undefined || permit === null) return null;
    session.permit = null;
    this.permit(number, null);
    return permit;
  }

  /** The connection that held the locks of all permits is gone. */
  losePermits(): void {
    for (const session of this.#sessions.values()) {
      this.giveUpPermit(session.number);
      // It has to ask again.
      session.permit = null;
    }
  }

  /** One that has something to send behind what it runs needs a permit, if nothing is to be taken back. */
  #wantPermit(session: PooledSession): void {
    if (session.permit !== null || session.queue.size < 2 || isHeldUp(session)) return;
    session.permit = undefined;
    this.#events.permit(session.number);
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
  cancelled({ session: number, id }: CancellationRequest): void {
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
        this.#events.unopened(message.reason);
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
        this.#recalled(message);
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
            id: this.#sessions.get(message.session)?.queue.current?.id,
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
      if (session.state === "opening" && reason !== null) this.#events.unopened(toReport(reason));
      this.#gone(session.number);
    }
    this.#events.changed(true);
  }

  #opened(number: number, backend: BackendIdentity): void {
    const session = this.#sessions.get(number);
    if (session === undefined) return;
    session.backend = backend;
    this.#byOwner.set(backend.owner, number);
    session.idleSinceMs = performance.now();
    this.#rest(session);
    this.#events.opened();
  }

  #results(results: readonly RunResult[]): void {
    let urgent = false;
    for (const result of results) {
      const session = this.#sessions.get(result.session);
      if (session === undefined || session.backend === null) continue;
      if (this.#unwithhold(session, result)) continue;
      this.#result(session, session.backend, result);
      urgent ||= result.outcome === "returned" || session.queue.expectedMs < this.#runTimes.lowMs;
    }
    this.#events.changed(urgent);
  }

  #result(session: PooledSession, { owner }: BackendIdentity, result: RunResult): void {
    session.stale ||= result.spoiled === true;
    const held = this.#letGo(session, result.id);
    if (held === null) return;
    // It was not one of those that the session has run.
    if (result.outcome === "returned" && result.crowded === true) session.kept = keptLess(session);
    if (session.distrusted && result.outcome === "ended" && mayBeUndone(result)) {
      this.#events.lost({ id: held.id, hash: held.hash }, owner, false);
      return;
    }
    if (this.#runsAgain(result)) {
      const { session: number, id } = result;
      this.#events.result({ outcome: "returned", session: number, id }, owner, held);
      return;
    }
    if (result.outcome === "ended" && result.stop !== null) {
      const ms = elapsedMs(result.start, result.stop);
      if (ms >= 0) this.#runTimes.add(held.hash, ms);
    }
    this.#events.result(result, owner, held);
  }

  /** What has been sent of what was called back is to be taken back as well. */
  #recalled(answer: SentRuns): void {
    const session = this.#sessions.get(answer.session);
    if (session === undefined || session.backend === null) return;
    const { sent } = answer;
    const permit = session.permit ?? null;
    const recall = { ...answer, sent: sent ?? [], permit, pid: session.backend.pid };
    // With nothing behind the front on the wire the permit can stay.
    if (sent === null || sent.length < 2) this.leave(recall);
    else {
      session.permit = null;
      this.#events.recall(recall);
    }
  }

  /** Whether the result is of a run that was withheld. */
  #unwithhold(session: PooledSession, { id, outcome }: RunResult): boolean {
    if (!session.withheld.delete(id)) return false;
    if (outcome === "ended") this.#log.error({ id }, "a run that was taken back has run");
    this.#settleState(session);
    this.#wantPermit(session);
    return true;
  }

  /** Sees to what a run says was missing; whether its failure is only that, and has not been before. */
  #runsAgain(result: RunResult): boolean {
    const before = this.#again.delete(result.id);
    if (result.lacking !== true) return false;
    // Their functions are other ones by then.
    this.renew();
    this.#events.lacking();
    if (result.outcome === "returned" || result.error === null) return false;
    if (before || result.large !== undefined) return false;
    this.#again.add(result.id);
    return true;
  }

  #hold(session: PooledSession, held: QueuedTask): void {
    const { queue } = session;
    this.#byTask.set(held.id, session);
    if (queue.size > 0) this.#groups.wait(held.hash, held.max);
    else {
      this.#become(session, "busy");
      this.#groups.occupy();
    }
    if (queue.add(held)) this.#groups.join(held.hash);
  }

  #letGo(session: PooledSession, id: string): QueuedTask | null {
    const removed = session.queue.remove(id);
    if (removed === null) return null;
    const { held, front, lastOfGroup } = removed;
    this.#byTask.delete(id);
    const next = session.queue.current;
    if (!front) this.#groups.stir(held.hash);
    else if (next !== null) this.#groups.stir(next.hash);
    if (lastOfGroup) this.#groups.leave(held.hash);
    if (front) session.slow = false;
    if (next === null) this.#groups.vacate();
    this.#settleState(session);
    return held;
  }

  /** It is free when all that it was given has come out. */
  #settleState(session: PooledSession): void {
    const { state, queue, withheld } = session;
    if (state !== "busy" || queue.size > 0 || withheld.size > 0) return;
    session.idleSinceMs = performance.now();
    this.#rest(session);
  }

  #started(number: number, id: string, start: string): void {
    const session = this.#sessions.get(number);
    const front = session?.queue.current;
    if (session?.backend === null || session === undefined || front?.id !== id) return;
    front.shown = true;
    this.#events.started({ id, owner: session.backend.owner, start });
  }

  #remote(number: number, id: string, pid: number): void {
    const session = this.#sessions.get(number);
    if (session?.queue.current?.id !== id || session.backend === null) return;
    this.#events.remote({ id, owner: session.backend.owner, pid });
  }

  #cancel(thread: ExecutorThread, number: number, id: string): void {
    const session = this.#sessions.get(number);
    const pid = session?.queue.current?.id === id ? session.backend?.pid : undefined;
    if (pid !== undefined) this.#events.cancel({ session: number, id, pid });
    else this.#executors.tell(thread, { type: "cancelled", session: number, id });
  }

  #gone(number: number): void {
    const session = this.#sessions.get(number);
    if (session === undefined) return;
    this.#sessions.delete(number);
    this.#putOff?.delete(session);
    if (session.backend !== null) this.#byOwner.delete(session.backend.owner);
    this.#counts[session.state] -= 1;
    session.state = "gone";
    if (typeof session.permit === "number") this.#events.revoke(session.permit);
    for (const [place, { id }] of [...session.queue.all].entries()) {
      const held = this.#letGo(session, id);
      if (held === null || session.backend === null) continue;
      this.#events.lost({ id, hash: held.hash }, session.backend.owner, place === 0);
    }
  }

  #become(session: PooledSession, state: SessionState): void {
    this.#counts[session.state] -= 1;
    this.#counts[state] += 1;
    session.state = state;
    session.spare = false;
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

function first<T>(values: Iterable<T>): T | null {
  for (const value of values) return value;
  return null;
}

/** Whether nothing more may be given to it behind what it has. */
const isHeldUp = ({ slow, stale, recalls, withheld }: PooledSession): boolean =>
  slow || stale || recalls > 0 || withheld.size > 0;

/** Each by its name: copying whole objects costs more than all the rest here. */
function toRun({ task, session, ledger }: AssignedRun): Run {
  const { id, input, group, timeoutMs, keep, save, format, atomic, take, remote } = task;
  return { session, id, input, group, timeoutMs, keep, save, format, atomic, take, ledger, remote };
}
