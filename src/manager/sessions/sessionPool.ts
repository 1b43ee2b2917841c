import type { PgTaskError } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { Run } from "../../shared/ipc/run.js";
import { ExecutorMessageHandler } from "./executorMessageHandler.js";
import type { ExecutorThreads, ExecutorThread, SessionMessage } from "./executorThreads.js";
import type { ClaimedTask, OfferedSession, QueueableSession } from "../model/tasks.js";
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
import { OverrunMonitor } from "./overrunMonitor.js";
import { Recalls } from "./recalls.js";
import { SessionRegistry } from "./sessionRegistry.js";
import { SlowRunMonitor, type SlowRunMonitorOptions } from "./slowRunMonitor.js";
import { slowRunMs } from "../../shared/tuning.js";
import { longRunMs, preferredSessionsPerThread } from "../model/tuning.js";

const defaultGroup = "group";

interface SessionPoolOptions extends Omit<SlowRunMonitorOptions, "recall"> {
  readonly executors: ExecutorThreads;
  readonly maxThreads: () => number;
  /** `pg_task.slow`, in ms. */
  readonly slowMs: () => number;
  readonly events: SessionPoolEvents;
  readonly log: Log;
}

export class SessionPool extends SessionRegistry {
  readonly #maxThreads: () => number;
  readonly #runTimes: RunTimes;
  readonly #messages: ExecutorMessageHandler;
  readonly #slowRuns: SlowRunMonitor;
  readonly overruns: OverrunMonitor;
  readonly recalls: Recalls;
  #lastNumber = 0;
  /** New sessions log in with the settings of the last group: their first task probably belongs to it. */
  #lastGroup = defaultGroup;

  constructor(options: SessionPoolOptions) {
    const { executors, groups, runTimes, events } = options;
    super(executors, groups);
    this.#runTimes = runTimes;
    this.#maxThreads = options.maxThreads;
    const recalls = new Recalls(this, executors, events);
    this.recalls = recalls;
    this.#messages = new ExecutorMessageHandler({
      ...options,
      registry: this,
      recalls,
      markStale: () => this.markStale(),
    });
    this.overruns = new OverrunMonitor(this, { ...options, onChange: () => events.changed(false) });
    this.#slowRuns = new SlowRunMonitor(this, { ...options, recall: (ids) => recalls.recall(ids, true) });
  }

  /** The cycle that ends had no task for the sessions that are free now. */
  markUnused(): void {
    if (this.counts.free === 0) return;
    for (const session of this) session.unused = session.state === "free";
  }

  /** @param lane with users, whose sessions they are */
  open(count: number, lane: string | null = null): void {
    const opened = new Map<ExecutorThread, number[]>();
    for (let each = 0; each < count; each += 1) {
      const thread = this.#threadForNext();
      const number = (this.#lastNumber += 1);
      this.add(openingSession(number, thread, lane));
      opened.set(thread, [...(opened.get(thread) ?? []), number]);
    }
    for (const [thread, sessions] of opened)
      this.executors.send(thread, { type: "open", sessions, group: this.#lastGroup, role: lane });
  }

  /**
   * Makes room for a session of a lane that has none, or too few: closes one for which the claims since `claimedAt` had no
   * task. For a lane that has none (`mayEnd`), one of the lane with the most sessions closes otherwise, after its current
   * run.
   */
  giveUpOne(lane: string | null, mayEnd: boolean, claimedAt: number): void {
    const sizes = this.laneSizes;
    const sizeOf = (session: PooledSession): number => sizes.get(session.lane) ?? 0;
    const others = [...this]
      .filter((session) => session.lane !== lane && session.state !== "closing")
      .toSorted((a, b) => sizeOf(b) - sizeOf(a));
    const unused = others.find((session) => session.unused && session.idleSinceMs < claimedAt);
    if (unused !== undefined) return this.close(unused);
    if (!mayEnd || others.some(({ stale, queue }) => stale && queue.currentMs < longRunMs)) return;
    const working = others.filter(({ state, stale }) => state === "busy" && !stale);
    const largest = working.filter((session, _, [first]) => first !== undefined && sizeOf(session) === sizeOf(first));
    const last = largest.find(({ queue }) => queue.currentMs < longRunMs) ?? largest[0];
    if (last === undefined) return;
    last.stale = true;
    this.recalls.recall(
      last.queue.queued.map(({ task }) => task.id),
      false,
    );
  }

  get load(): SessionPoolLoad {
    return readLoad(this);
  }

  /** Offers free sessions to a claim, which must assign runs or end or withdraw the offers. */
  offer(count: number): OfferedSession[] {
    const offered: OfferedSession[] = [];
    if (this.free === 0) return offered;
    for (const session of this) {
      if (offered.length >= count) break;
      if (session.state !== "free" || session.backend === null || !this.isInLane(session)) continue;
      this.setState(session, "offered");
      const { number, backend } = session;
      offered.push({ ...backend, number, dedication: dedicationNow(session, backend) });
    }
    return offered;
  }

  withdrawOffers(offered: readonly OfferedSession[]): void {
    for (const { number } of offered) {
      const session = this.get(number);
      if (session?.state === "offered") this.makeFree(session);
    }
  }

  /** Frees offered sessions that got no task, or closes them if they are dedicated to a group. */
  endOffers(offered: readonly OfferedSession[]): void {
    for (const { number } of offered) {
      const session = this.get(number);
      if (session?.state !== "offered") continue;
      if (session.dedication === null) this.makeFree(session);
      else this.close(session);
    }
  }

  /** The busy sessions that may be given more tasks, those with the least expected work first. */
  queueable(): QueueableSession[] {
    const queueable: QueueableSession[] = [];
    for (const session of this) {
      const { number, state, backend, queue } = session;
      if (state !== "busy" || backend === null || isBlocked(session) || !this.isInLane(session)) continue;
      if (queue.current?.task.exclusive === true) continue;
      const { expectedMs, groups } = queue;
      queueable.push({ ...backend, number, expectedMs, groups: [...groups] });
    }
    return queueable.toSorted((a, b) => a.expectedMs - b.expectedMs);
  }

  /** Queues claimed tasks in their sessions. Returns those whose session has closed or must not get more tasks. */
  assign(tasks: readonly ClaimedTask[], nextLedger: () => Run["ledger"]): ClaimedTask[] {
    const batches = new Map<ExecutorThread, Run[]>();
    const missed: ClaimedTask[] = [];
    const now = performance.now();
    for (const task of tasks) {
      const session = this.ofOwner(task.owner);
      // Whatever the claim has done: the SQL of one role never reaches a session of another.
      if (session === undefined || !canTake(session) || session.lane !== (task.lane ?? null)) {
        missed.push(task);
        continue;
      }
      this.#enqueue(session, task, now);
      const run = toRun(task, session.number, nextLedger());
      const batch = batches.get(session.thread);
      if (batch === undefined) batches.set(session.thread, [run]);
      else batch.push(run);
    }
    for (const [thread, batch] of batches) this.executors.dispatch(thread, batch);
    this.#slowRuns.start();
    this.overruns.start();
    return missed;
  }

  #enqueue(session: PooledSession, task: ClaimedTask, now: number): void {
    const { hash, group, mayPause, endsPlainly, dedicated } = task;
    this.#lastGroup = group;
    this.enqueue(session, {
      task,
      hasPlainEnd: !mayPause && endsPlainly,
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

  closeFree(count = Infinity): void {
    let remaining = count;
    for (const session of this) {
      if (remaining <= 0) return;
      if (session.state !== "free") continue;
      remaining -= 1;
      this.close(session);
    }
  }

  /** Closes sessions idle for `idleMs` that are not dedicated to a group. One session of the pool stays open. */
  closeIdle(idleMs: number): void {
    let remaining = this.size - this.closing;
    const latest = performance.now() - idleMs;
    for (const session of this) {
      if (remaining <= 1) return;
      const { state, dedication, idleSinceMs } = session;
      if (state !== "free" || dedication !== null || idleSinceMs > latest) continue;
      remaining -= 1;
      this.close(session);
    }
  }

  markStale(): void {
    const queued: string[] = [];
    for (const session of this) {
      session.stale = true;
      if (session.state === "free") this.close(session);
      queued.push(...session.queue.queued.map(({ task }) => task.id));
    }
    this.recalls.recall(queued, false);
  }

  /** Cancels the run of a task that was deleted or set to another state. */
  cancel(id: string): void {
    const session = this.ofTask(id);
    if (session === undefined) return;
    for (const queued of session.queue.all) if (queued.task.id === id) queued.hasPlainEnd = false;
    this.executors.send(session.thread, { type: "cancel", session: session.number, id });
  }

  /** Ends the sessions of these owners at once. Their runs are lost. */
  terminate(owners: readonly string[]): void {
    for (const { number, thread, backend } of this) {
      if (backend === null || !owners.includes(backend.owner)) continue;
      this.executors.send(thread, { type: "drop", sessions: [number] });
    }
  }

  /** These owners' backends are gone. The ledger decides whether commits that they report took place. */
  distrust(owners: readonly string[]): void {
    for (const owner of owners) {
      const session = this.ofOwner(owner);
      if (session !== undefined) session.distrusted = true;
    }
  }

  /** Asks how long nothing has been received from these backends. The event `silent` gives the answer. */
  measureSilence(owners: readonly string[]): void {
    for (const owner of owners) {
      const session = this.ofOwner(owner);
      if (session === undefined) continue;
      this.executors.send(session.thread, { type: "reportSilence", sessions: [session.number] });
    }
  }

  abort(): void {
    for (const thread of this.executors.threads) this.executors.send(thread, { type: "abort" });
  }

  /** The cancellation has been sent to the session's backend. */
  confirmCancel({ session: number, id }: CancellationRequest): void {
    const session = this.get(number);
    if (session === undefined) return;
    this.executors.send(session.thread, { type: "cancelAnswered", session: number, id });
  }

  receive(thread: ExecutorThread, message: SessionMessage): void {
    this.#messages.receive(thread, message);
  }

  threadEnded(thread: ExecutorThread, reason: PgTaskError | null): void {
    this.#messages.threadEnded(thread, reason);
  }

  #threadForNext(): ExecutorThread {
    const sizes = new Map([...this.executors.threads].map((thread) => [thread, 0]));
    for (const { thread } of this) sizes.set(thread, (sizes.get(thread) ?? 0) + 1);
    const [smallest] = [...sizes].toSorted(([, a], [, b]) => a - b);
    const mayStart = sizes.size < this.#maxThreads();
    if (smallest === undefined || (smallest[1] >= preferredSessionsPerThread && mayStart))
      return this.executors.start();
    return smallest[0];
  }
}

/** Whether the session takes runs. A blocked one would start them before recalled ones or behind a slow one. */
function canTake(session: PooledSession): boolean {
  if (session.stale) return false;
  if (session.state === "busy") return !isBlocked(session);
  return session.state === "free" || session.state === "offered";
}

const toRun = (task: ClaimedTask, session: number, ledger: Run["ledger"]): Run =>
  task.lane === undefined
    ? toPlainRun(task, session, ledger)
    : { ...toPlainRun(task, session, ledger), role: task.role ?? null, lane: task.lane };

/** Copies only what the executor needs, because copying whole objects costs more than the rest here. */
const toPlainRun = (task: ClaimedTask, session: number, ledger: Run["ledger"]): Run => ({
  session,
  ledger,
  id: task.id,
  input: task.input,
  args: task.args,
  results: task.results,
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
