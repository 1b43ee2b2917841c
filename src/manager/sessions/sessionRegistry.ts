import type { BackendIdentity } from "../../shared/postgres/backendIdentity.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { ClaimedTask, OwnedTask } from "../model/tasks.js";
import type { ExecutorThreads } from "./executorThreads.js";
import type { PooledSession, SessionState } from "./session.js";
import type { QueuedTask } from "./sessionQueue.js";
import { canMove } from "./slowRunMonitor.js";

/** The sessions of one manager and their queues. It keeps the counts of the groups up to date. */
export class SessionRegistry {
  protected readonly executors: ExecutorThreads;
  protected readonly groups: ActiveGroups;
  readonly #sessions = new Map<number, PooledSession>();
  readonly #byTask = new Map<string, PooledSession>();
  readonly #byOwner = new Map<string, PooledSession>();
  readonly #counts = { opening: 0, free: 0, offered: 0, busy: 0, closing: 0, gone: 0 };
  /** Closing sessions whose threads have not been told yet. Null means that threads are told at once. */
  #deferredCloses: Set<PooledSession> | null = null;

  constructor(executors: ExecutorThreads, groups: ActiveGroups) {
    this.executors = executors;
    this.groups = groups;
  }

  /** With users: the lane that was entered last (`laneOf`), in which the claims are. */
  #lane: string | null | undefined;

  get size(): number {
    return this.#sessions.size;
  }

  enterLane(lane: string | null): void {
    this.#lane = lane;
  }

  /** Whether the table has users. */
  get hasLanes(): boolean {
    return this.#lane !== undefined;
  }

  protected isInLane({ lane }: PooledSession): boolean {
    return this.#lane === undefined || lane === this.#lane;
  }

  /** How many sessions the lane has, without those that close. */
  get laneSize(): number {
    return this.#lane === undefined ? this.size : (this.laneSizes.get(this.#lane) ?? 0);
  }

  /** How many sessions each lane has, without those that close. */
  get laneSizes(): ReadonlyMap<string | null, number> {
    const sizes = new Map<string | null, number>();
    for (const { lane, state } of this) if (state !== "closing") sizes.set(lane, (sizes.get(lane) ?? 0) + 1);
    return sizes;
  }

  /** Whether the lane has no free session, and as many others as this. */
  isLaneFull(lane: string | null, max: number): boolean {
    const own = [...this].filter((session) => session.lane === lane && session.state !== "closing");
    return own.length >= max && own.every(({ state }) => state !== "free");
  }

  get laneBusy(): number {
    return this.#countInLane("busy");
  }

  get laneOpening(): number {
    return this.#countInLane("opening");
  }

  #countInLane(state: SessionState): number {
    if (this.#lane === undefined) return this.#counts[state];
    let count = 0;
    for (const session of this) if (session.state === state && this.isInLane(session)) count += 1;
    return count;
  }

  get counts(): Readonly<Record<SessionState, number>> {
    return this.#counts;
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
    return this.#countInLane("free");
  }

  /** The number of sessions with a run that takes longer than expected. */
  get slow(): number {
    let count = 0;
    for (const { slow } of this) if (slow) count += 1;
    return count;
  }

  get hasUnused(): boolean {
    return this.free > 0 && [...this].some((session) => session.unused && this.isInLane(session));
  }

  get hasDedicated(): boolean {
    for (const { state, dedication } of this) if (state === "free" && dedication !== null) return true;
    return false;
  }

  get owners(): string[] {
    return [...this.#byOwner.keys()];
  }

  get taskCount(): number {
    return this.#byTask.size;
  }

  get taskIds(): string[] {
    return [...this.#byTask.keys()];
  }

  hasTask({ id, owner }: OwnedTask): boolean {
    return this.ofTask(id)?.backend?.owner === owner;
  }

  get currentTasks(): OwnedTask[] {
    return [...this].flatMap(({ queue: { current }, backend }) =>
      backend === null || current === null ? [] : [{ id: current.task.id, owner: backend.owner }],
    );
  }

  /** One task of each session from which a result is expected: the current task or, if there is none, a recalled one. */
  get awaitedTasks(): OwnedTask[] {
    return [...this].flatMap(({ queue, recalledRuns, backend }) => {
      const [recalled] = recalledRuns;
      const id = queue.current?.task.id ?? recalled;
      return backend === null || id === undefined ? [] : [{ id, owner: backend.owner }];
    });
  }

  /** The tasks queued behind others for at least `minMs`, except those that are being recalled. */
  queuedTasks(minMs: number): ClaimedTask[] {
    const latest = performance.now() - minMs;
    return [...this].flatMap(({ queue }) =>
      queue.queued.flatMap(({ isRecalling, assignedAt, task }) => (isRecalling || assignedAt > latest ? [] : [task])),
    );
  }

  /** Returns how many queued tasks could run in other sessions; stops counting at `max`. */
  countMovable(max: number): number {
    let count = 0;
    for (const session of this) {
      if (!this.isInLane(session)) continue;
      const { current, queued } = session.queue;
      for (const { task } of current === null ? [] : queued) {
        if (count >= max) return count;
        if (current !== null && canMove(task, current.task, this.groups)) count += 1;
      }
    }
    return count;
  }

  get(number: number): PooledSession | undefined {
    return this.#sessions.get(number);
  }

  ofTask(id: string): PooledSession | undefined {
    return this.#byTask.get(id);
  }

  ofOwner(owner: string): PooledSession | undefined {
    return this.#byOwner.get(owner);
  }

  [Symbol.iterator](): IterableIterator<PooledSession> {
    return this.#sessions.values();
  }

  add(session: PooledSession): void {
    this.#sessions.set(session.number, session);
    this.#counts[session.state] += 1;
  }

  setBackend(session: PooledSession, backend: BackendIdentity): void {
    session.backend = backend;
    this.#byOwner.set(backend.owner, session);
    this.#becomeIdle(session);
  }

  setState(session: PooledSession, state: SessionState): void {
    this.#counts[session.state] -= 1;
    this.#counts[state] += 1;
    session.state = state;
    session.unused = false;
  }

  remove(session: PooledSession): void {
    this.#sessions.delete(session.number);
    this.#deferredCloses?.delete(session);
    if (session.backend !== null) this.#byOwner.delete(session.backend.owner);
    this.#counts[session.state] -= 1;
    session.state = "gone";
  }

  enqueue(session: PooledSession, queued: QueuedTask): void {
    const { queue } = session;
    const { id, hash, max, key } = queued.task;
    this.groups.runningKeys.add(key);
    this.#byTask.set(id, session);
    if (queue.size > 0) this.groups.enqueue(hash, max);
    else {
      this.setState(session, "busy");
      this.groups.addBusySession();
      this.groups.shares?.started(queued.task);
    }
    if (queue.add(queued)) this.groups.addSession(hash);
    if (queued.isStartUnknown) this.groups.addStarting(hash);
    if (queue.size === 1) this.groups.noteStart(hash);
  }

  noteReportedStart(queued: QueuedTask): void {
    const { hash } = queued.task;
    this.groups.noteStart(hash);
    if (queued.isStartUnknown) this.groups.removeStarting(hash);
    queued.isStartUnknown = false;
  }

  dequeue(session: PooledSession, id: string): QueuedTask | null {
    const { shares } = this.groups;
    const ranMs = shares === null ? 0 : session.queue.currentMs;
    const removed = session.queue.remove(id);
    if (removed === null) return null;
    const { queued, wasCurrent, wasLastOfGroup } = removed;
    const { hash, key } = queued.task;
    this.groups.runningKeys.remove(key);
    this.#byTask.delete(id);
    const { current } = session.queue;
    if (wasCurrent && shares !== null) {
      shares.ended(queued.task, ranMs);
      if (current !== null) shares.started(current.task);
    }
    if (!wasCurrent) this.groups.dequeue(hash);
    else if (current !== null) {
      this.groups.noteStart(current.task.hash);
      this.groups.dequeue(current.task.hash);
    }
    if (wasLastOfGroup) this.groups.removeSession(hash);
    // The task may have started without the session having reported it.
    if (queued.isStartUnknown) this.noteReportedStart(queued);
    if (wasCurrent) session.slow = false;
    if (current === null) this.groups.removeBusySession();
    this.freeIfDone(session);
    return queued;
  }

  /** Notes that a recalled run was answered. Returns false if the run was not recalled after it was sent. */
  endRecalledRun(session: PooledSession, id: string): boolean {
    if (!session.recalledRuns.delete(id)) return false;
    this.freeIfDone(session);
    return true;
  }

  /** Frees a busy session once its queue is empty and all its recalled runs have been answered. */
  freeIfDone(session: PooledSession): void {
    const { state, queue, recalledRuns } = session;
    if (state === "busy" && queue.size === 0 && recalledRuns.size === 0) this.#becomeIdle(session);
  }

  /** Makes a session that has no tasks free, or closes the session if it is stale. */
  makeFree(session: PooledSession): void {
    if (session.stale) this.close(session);
    else this.setState(session, "free");
  }

  close(session: PooledSession): void {
    this.setState(session, "closing");
    if (this.#deferredCloses === null) this.#sendClose(session);
    else this.#deferredCloses.add(session);
  }

  /** From now on, sessions that are to close stay open until `closeDeferred` is called. */
  deferClosing(): void {
    this.#deferredCloses ??= new Set();
  }

  closeDeferred(): void {
    if (this.#deferredCloses === null) return;
    for (const session of this.#deferredCloses) this.#sendClose(session);
    this.#deferredCloses.clear();
  }

  /** Returns whether the session of this owner exists and its thread has not been told to close it. */
  isOpen(owner: string): boolean {
    const session = this.#byOwner.get(owner);
    if (session === undefined) return false;
    return session.state !== "closing" || this.#deferredCloses?.has(session) === true;
  }

  #becomeIdle(session: PooledSession): void {
    session.idleSinceMs = performance.now();
    this.makeFree(session);
  }

  #sendClose({ thread, number }: PooledSession): void {
    this.executors.send(thread, { type: "close", sessions: [number] });
  }
}
