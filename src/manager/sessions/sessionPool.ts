import type { PgTaskError } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { Run } from "../../shared/ipc/run.js";
import { PoolTasks } from "./poolTasks.js";
import { ExecutorMessageHandler } from "./executorMessageHandler.js";
import type { ExecutorThreads, ExecutorThread, SessionMessage } from "./executorThreads.js";
import type { ClaimedTask, OfferedSession, QueueableSession } from "../model/tasks.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { RunTimes } from "./runTimes.js";
import {
  dedicationNow,
  extendDedication,
  isBlocked,
  openingSession,
  type CancellationRequest,
  type PooledSession,
  type SessionPoolEvents,
} from "./session.js";
import { readLoad, type SessionPoolLoad } from "./sessionPoolLoad.js";
import { SessionRecalls } from "./sessionRecalls.js";
import { SessionRegistry } from "./sessionRegistry.js";
import { SlowRunMonitor } from "./slowRunMonitor.js";
import { slowRunMs } from "../../shared/tuning.js";
import { preferredSessionsPerThread } from "../model/tuning.js";

/** The default of the column `group`. */
const defaultGroup = "group";

/** The executor sessions of one manager. The state diagram of a session is in session.ts. */
export class SessionPool {
  readonly #executors: ExecutorThreads;
  readonly #maxThreads: () => number;
  readonly #runTimes: RunTimes;
  readonly #registry: SessionRegistry;
  readonly #messages: ExecutorMessageHandler;
  readonly #slowRuns: SlowRunMonitor;
  readonly tasks: PoolTasks;
  readonly recalls: SessionRecalls;
  #lastNumber = 0;
  /**
   * The group of the last assigned task. New sessions log in with the settings of this group, because their first task
   * probably belongs to it.
   */
  #lastGroup = defaultGroup;

  constructor(options: {
    readonly executors: ExecutorThreads;
    readonly groups: ActiveGroups;
    readonly runTimes: RunTimes;
    /** The maximum number of threads. It is read whenever another thread could be started. */
    readonly maxThreads: () => number;
    /**
     * Returns whether one more session, an unused one or one that may be opened, could be given a task of a group that
     * already runs something, or of one that does not.
     */
    readonly mayUseMore: (groupRuns: boolean) => boolean;
    /** How long a run may take before the tasks queued behind it are recalled, in ms; default 50. */
    readonly slowMs?: number;
    readonly events: SessionPoolEvents;
    readonly log: Log;
  }) {
    const { executors, groups, runTimes, events, log } = options;
    this.#executors = executors;
    this.#runTimes = runTimes;
    this.#maxThreads = options.maxThreads;
    const registry = new SessionRegistry(executors, groups);
    const recalls = new SessionRecalls(registry, executors, events);
    this.#registry = registry;
    this.recalls = recalls;
    this.tasks = new PoolTasks(registry, groups);
    const markStale = (): void => this.markStale();
    this.#messages = new ExecutorMessageHandler({
      registry,
      executors,
      recalls,
      runTimes,
      markStale,
      events,
      log,
    });
    const recall = (ids: readonly string[]): void => recalls.recall(ids, true);
    this.#slowRuns = new SlowRunMonitor(registry, { ...options, recall });
  }

  get size(): number {
    return this.#registry.size;
  }

  get opening(): number {
    return this.#registry.counts.opening;
  }

  get closing(): number {
    return this.#registry.counts.closing;
  }

  get busy(): number {
    return this.#registry.counts.busy;
  }

  get free(): number {
    return this.#registry.counts.free;
  }

  /** Whether there is a free session for which the last cycle had no task. */
  get hasUnused(): boolean {
    if (this.free === 0) return false;
    return [...this.#registry].some(({ unused }) => unused);
  }

  /** Whether a free session is dedicated to a group. */
  get hasDedicated(): boolean {
    for (const { state, dedication } of this.#registry) if (state === "free" && dedication !== null) return true;
    return false;
  }

  /** Notes, at the end of a cycle, that the cycle had no task for the sessions that are free now. */
  markUnused(): void {
    if (this.free === 0) return;
    for (const session of this.#registry) session.unused = session.state === "free";
  }

  get load(): SessionPoolLoad {
    return readLoad(this.#registry);
  }

  /** Returns the owners of all open sessions. */
  owners(): string[] {
    return this.#registry.owners;
  }

  open(count: number): void {
    const opened = new Map<ExecutorThread, number[]>();
    for (let each = 0; each < count; each += 1) {
      const thread = this.#threadForNext();
      const number = (this.#lastNumber += 1);
      this.#registry.add(openingSession(number, thread));
      opened.set(thread, [...(opened.get(thread) ?? []), number]);
    }
    for (const [thread, sessions] of opened)
      this.#executors.send(thread, { type: "open", sessions, group: this.#lastGroup });
  }

  /**
   * Reserves up to `count` free sessions for a claim. Each of them must then be assigned a run, or its offer must be
   * ended or withdrawn.
   */
  offer(count: number): OfferedSession[] {
    const offered: OfferedSession[] = [];
    if (this.free === 0) return offered;
    for (const session of this.#registry) {
      if (offered.length >= count) break;
      if (session.state !== "free" || session.backend === null) continue;
      this.#registry.setState(session, "offered");
      const { number, backend } = session;
      offered.push({ ...backend, number, dedication: dedicationNow(session, backend) });
    }
    return offered;
  }

  /** Frees offered sessions because nothing was claimed at all. */
  withdrawOffers(offered: readonly OfferedSession[]): void {
    for (const { number } of offered) {
      const session = this.#registry.get(number);
      if (session?.state === "offered") this.#registry.free(session);
    }
  }

  /**
   * Frees the offered sessions for which a claim had no task. Dedicated sessions, which stay with one group, are closed
   * instead.
   */
  endOffers(offered: readonly OfferedSession[]): void {
    for (const { number } of offered) {
      const session = this.#registry.get(number);
      if (session?.state !== "offered") continue;
      if (session.dedication === null) this.#registry.free(session);
      else this.#registry.close(session);
    }
  }

  /** The number of sessions with a run that takes longer than expected. */
  get slow(): number {
    let count = 0;
    for (const { slow } of this.#registry) if (slow) count += 1;
    return count;
  }

  /** Returns the busy sessions that may be given more tasks, those with the least expected work first. */
  queueable(): QueueableSession[] {
    const queueable: QueueableSession[] = [];
    for (const session of this.#registry) {
      const { number, state, backend, queue } = session;
      if (state !== "busy" || backend === null || isBlocked(session)) continue;
      if (queue.current?.task.exclusive === true) continue;
      const { expectedMs, groups } = queue;
      queueable.push({ ...backend, number, expectedMs, groups: [...groups] });
    }
    return queueable.toSorted((a, b) => a.expectedMs - b.expectedMs);
  }

  /**
   * Queues claimed tasks in their sessions. All runs for one thread are sent to it in a single message.
   *
   * @param nextLedger returns the ledger of the next run
   * @returns the tasks that could not be queued, because their session has closed or must not get more tasks.
   */
  assign(tasks: readonly ClaimedTask[], nextLedger: () => Run["ledger"]): ClaimedTask[] {
    const batches = new Map<ExecutorThread, Run[]>();
    const missed: ClaimedTask[] = [];
    const now = performance.now();
    for (const task of tasks) {
      const session = this.#registry.ofOwner(task.owner);
      if (session === undefined || !canTake(session)) {
        missed.push(task);
        continue;
      }
      this.#enqueue(session, task, now);
      const run = toRun(task, session.number, nextLedger());
      const batch = batches.get(session.thread);
      if (batch === undefined) batches.set(session.thread, [run]);
      else batch.push(run);
    }
    for (const [thread, batch] of batches) this.#executors.dispatch(thread, batch);
    this.#slowRuns.start();
    return missed;
  }

  #enqueue(session: PooledSession, task: ClaimedTask, now: number): void {
    const { hash, group, mayPause, repeats, dedicated } = task;
    this.#lastGroup = group;
    this.#registry.enqueue(session, {
      task,
      hasPlainEnd: !mayPause && !repeats,
      expectedMs: this.#runTimes.expectedMs(hash) ?? slowRunMs,
      isStartWritten: task.startsNow,
      isStartUnknown: task.reportsStart,
      assignedAt: now,
      expectedAt: now + session.queue.expectedMs,
      isSlow: false,
      isRecalling: false,
    });
    this.recalls.requestPermit(session);
    session.dedication = dedicated ? extendDedication(session, hash) : null;
  }

  /** Closes up to `count` free sessions. */
  close(count = Infinity): void {
    let remaining = count;
    for (const session of this.#registry) {
      if (remaining <= 0) return;
      if (session.state !== "free") continue;
      remaining -= 1;
      this.#registry.close(session);
    }
  }

  /**
   * Closes free sessions that have been idle for `idleMs` and are not dedicated to a group. At least one session of the
   * pool stays open.
   */
  closeIdle(idleMs: number): void {
    let remaining = this.size - this.closing;
    const latest = performance.now() - idleMs;
    for (const session of this.#registry) {
      if (remaining <= 1) return;
      const { state, dedication, idleSinceMs } = session;
      if (state !== "free" || dedication !== null || idleSinceMs > latest) continue;
      remaining -= 1;
      this.#registry.close(session);
    }
  }

  /**
   * Marks all sessions as stale, because new sessions would differ from them. Free sessions close, and queued tasks are
   * recalled, so that stale sessions start nothing more.
   */
  markStale(): void {
    const queued: string[] = [];
    for (const session of this.#registry) {
      session.stale = true;
      if (session.state === "free") this.#registry.close(session);
      queued.push(...session.queue.queued.map(({ task }) => task.id));
    }
    this.recalls.recall(queued, false);
  }

  /** From now on, sessions that are to close stay open until `closeDeferred` is called. */
  deferClosing(): void {
    this.#registry.deferClosing();
  }

  closeDeferred(): void {
    this.#registry.closeDeferred();
  }

  /** Returns whether the session of this owner exists and its thread has not been told to close it. */
  isOpen(owner: string): boolean {
    return this.#registry.isOpen(owner);
  }

  /** Cancels the run of a task that was deleted or set to another state. */
  cancel(id: string): void {
    const session = this.#registry.ofTask(id);
    if (session === undefined) return;
    for (const queued of session.queue.all) if (queued.task.id === id) queued.hasPlainEnd = false;
    this.#executors.send(session.thread, { type: "cancel", session: session.number, id });
  }

  /** Ends the sessions of these owners at once. Their runs are lost. */
  terminate(owners: readonly string[]): void {
    for (const { number, thread, backend } of this.#registry) {
      if (backend === null || !owners.includes(backend.owner)) continue;
      this.#executors.send(thread, { type: "drop", sessions: [number] });
    }
  }

  /**
   * Marks the sessions of these owners as distrusted, because their backends are gone. If such a session reports a
   * commit, the ledger decides whether it took place.
   */
  distrust(owners: readonly string[]): void {
    for (const owner of owners) {
      const session = this.#registry.ofOwner(owner);
      if (session !== undefined) session.distrusted = true;
    }
  }

  /**
   * Asks the threads of these sessions how long they have received nothing from the backends. The event `silent` gives
   * the answer.
   */
  measureSilence(owners: readonly string[]): void {
    for (const owner of owners) {
      const session = this.#registry.ofOwner(owner);
      if (session === undefined) continue;
      this.#executors.send(session.thread, { type: "reportSilence", sessions: [session.number] });
    }
  }

  /** Cancels all runs and releases their tasks. */
  abort(): void {
    for (const thread of this.#executors.threads) this.#executors.send(thread, { type: "abort" });
  }

  /** Tells a session that the cancellation it requested has been sent to its backend. */
  confirmCancel({ session: number, id }: CancellationRequest): void {
    const session = this.#registry.get(number);
    if (session === undefined) return;
    this.#executors.send(session.thread, { type: "cancelAnswered", session: number, id });
  }

  receive(thread: ExecutorThread, message: SessionMessage): void {
    this.#messages.receive(thread, message);
  }

  threadEnded(thread: ExecutorThread, reason: PgTaskError | null): void {
    this.#messages.threadEnded(thread, reason);
  }

  /** Returns the thread with the fewest sessions. Starts another thread if every thread has enough sessions. */
  #threadForNext(): ExecutorThread {
    const sizes = new Map([...this.#executors.threads].map((thread) => [thread, 0]));
    for (const { thread } of this.#registry) sizes.set(thread, (sizes.get(thread) ?? 0) + 1);
    const [smallest] = [...sizes].toSorted(([, a], [, b]) => a - b);
    const mayStart = sizes.size < this.#maxThreads();
    if (smallest === undefined || (smallest[1] >= preferredSessionsPerThread && mayStart))
      return this.#executors.start();
    return smallest[0];
  }
}

/**
 * Whether a run may be given to a session. In a blocked session, the run would start before tasks that are being
 * recalled, or wait behind a slow run.
 */
function canTake(session: PooledSession): boolean {
  if (session.stale) return false;
  if (session.state === "busy") return !isBlocked(session);
  return session.state === "free" || session.state === "offered";
}

/**
 * Copies only the fields that the executor needs, because copying whole objects costs more than the rest of an
 * assignment.
 */
const toRun = (task: ClaimedTask, session: number, ledger: Run["ledger"]): Run => ({
  session,
  ledger,
  id: task.id,
  input: task.input,
  args: task.args,
  group: task.group,
  timeoutMs: task.timeoutMs,
  dedicated: task.dedicated,
  save: task.save,
  header: task.header,
  string: task.string,
  delimiter: task.delimiter,
  quote: task.quote,
  escape: task.escape,
  null: task.null,
  atomic: task.atomic,
  claimedAt: task.claimedAt,
  remote: task.remote,
  endsWithConnection: task.endsWithConnection,
  reportsStart: task.reportsStart,
});
