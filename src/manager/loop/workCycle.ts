import { inOneWrite, type Client } from "../../shared/postgres/client.js";
import { toReport } from "../../shared/errors.js";
import type { Log } from "../../shared/log.js";
import type { ActiveGroups } from "../groups/groups.js";
import type { PendingResults, ReleasedTask } from "../results/pendingResults.js";
import { isTransient } from "../../shared/postgres/transientErrors.js";
import { expireTasks } from "../groups/expireTasks.js";
import { RejectedRows, singleOut } from "../rejectedRows.js";
import type { DeferredPauses } from "../groups/deferredPauses.js";
import type { Recalls } from "../sessions/recalls.js";
import type { RemotePids } from "../results/remotePids.js";
import type { Claimer, ClaimOutcome } from "../claim/claimer.js";
import { Completer } from "../results/completer.js";
import type { LargeResultWriter } from "../results/largeResultWriter.js";
import type { GroupScanner } from "../groups/groupScanner.js";
import type { SessionPool } from "../sessions/sessionPool.js";
import type { Starts } from "../results/starts.js";
import type { ManagerSettings } from "../settings.js";
import type { OwnedResult } from "../results/completeFull.sql.js";
import { changedTasks } from "../sessions/changedTasks.sql.js";
import { releaseTasks, type OwnedTask } from "../results/releaseTasks.sql.js";
import { showStarted } from "../results/showStarted.sql.js";
import { adjustLockWait } from "../sql/lockWait.js";
import { stillLocked } from "../claim/stillLocked.sql.js";
import { unwantedRuns } from "../sessions/unwantedRuns.sql.js";
import { showRemotePids } from "../results/remotePid.sql.js";
import type { TaskTable } from "../schema/taskTable.js";
import type { Tracing } from "../telemetry/tracing.js";

/** A turn that takes longer is told of, in ms, but no more often than this. */
const longTurnMs = 5_000;
const tellEveryMs = 60_000;

export interface CycleOutcome {
  /** How many tasks were started. */
  readonly claimed: number;
  /** How many more could start had they a session. */
  readonly more: number;
  /** How many were not active any more. */
  readonly gone: number;
  /** How many results were to be written. */
  readonly ended: number;
  /** Whether another turn has something to do right away. */
  readonly again: boolean;
  /** Time until the next task becomes due, in ms, null when none is planned. */
  readonly nearestMs: number | null;
  /** Whether some of it could not be done for now, such as when somebody has locked the table. */
  readonly putOff: boolean;
}

/** How often it is looked whether what sessions have is wanted any longer, when that is much, in ms. */
const watchMs = 25;
/** How many tasks of sessions are looked at each time. */
const fewTasks = 64;
/**
 * A task that has waited in a session for this long is looked at every so often, in ms, since not every change
 * of its row is told. Short runs hardly ever wait for that long, so the look costs them nothing.
 */
const watchWaitingMs = 100;

/**
 * One turn of the manager: writes what came out, marks and looks what became due, all of it in one
 * round trip; then gives due tasks to sessions. As long as sessions are busy and the next tasks are
 * known, those are claimed in the same round trip already; so is the only task that is due while nothing runs.
 */
export class WorkCycle {
  readonly #table: TaskTable;
  readonly #sessions: SessionPool;
  readonly #groups: ActiveGroups;
  readonly #outbox: PendingResults;
  readonly #remotePids: RemotePids;
  readonly #recalls: Recalls;
  readonly #pauses: DeferredPauses;
  readonly #log: Log;
  readonly #lookout: GroupScanner;
  readonly #claiming: Claimer;
  readonly #starts: Starts;
  readonly #completing: Completer;
  readonly #tracing: Tracing | null;
  /** Tasks whose return to PLAN the server refuses. */
  readonly #refusedReturns: RejectedRows;
  /** Whether somebody may have deleted what sessions have, or set its state, and when that was last looked at. */
  #unwatched = false;
  /** Whether that was told, so that it may be any of them. */
  #told = false;
  #watchedAt = 0;
  /** Whether what the outbox has handed out is on its way. */
  #writing = false;
  #toldAt = -Infinity;

  constructor(options: {
    readonly table: TaskTable;
    readonly sessions: SessionPool;
    readonly groups: ActiveGroups;
    readonly outbox: PendingResults;
    readonly remotePids: RemotePids;
    readonly recalls: Recalls;
    readonly pauses: DeferredPauses;
    readonly lookout: GroupScanner;
    readonly claiming: Claimer;
    readonly starts: Starts;
    readonly large?: LargeResultWriter;
    readonly tracing?: Tracing | null;
    readonly log: Log;
  }) {
    this.#table = options.table;
    this.#sessions = options.sessions;
    this.#groups = options.groups;
    this.#outbox = options.outbox;
    this.#remotePids = options.remotePids;
    this.#recalls = options.recalls;
    this.#pauses = options.pauses;
    this.#lookout = options.lookout;
    this.#claiming = options.claiming;
    this.#starts = options.starts;
    this.#tracing = options.tracing ?? null;
    this.#completing = new Completer({
      ...options,
      large: options.large ?? null,
      tracing: this.#tracing,
    });
    this.#log = options.log;
    this.#refusedReturns = new RejectedRows(options.log);
  }

  /** Whether all that came out is in its rows, as far as the server takes it. */
  get written(): boolean {
    return !this.#writing && this.#outbox.size === this.#outbox.refused;
  }

  /** Whether something waits for rows that somebody has locked, or is being written beside the turns. */
  get waiting(): boolean {
    const { held, large } = this.#outbox;
    const toShow = this.#starts.held + this.#remotePids.held;
    return [this.#claiming.locked.length, held, large, this.#pauses.locked, toShow].some(
      (count) => count > 0,
    );
  }

  /** Until something is to be tried again that the server has refused, in ms; Infinity when there is nothing. */
  get retryMs(): number {
    const { refusals } = this.#claiming;
    return Math.min(this.#outbox.refusedMs, refusals.pauseMs, this.#pauses.retryMs);
  }

  /** Offers what is not locked any more; to be called from time to time. */
  async release(client: Client): Promise<void> {
    this.#outbox.release();
    this.#remotePids.release();
    this.#starts.release();
    try {
      if (this.#pauses.size > 0) {
        await this.#pauses.retry(client);
        this.#lookout.change();
      }
      if (this.#claiming.refusals.pauseMs === 0) {
        await this.#claiming.retry(client);
        this.#lookout.change();
      }
      if (this.#claiming.locked.length === 0) return;
      const { locked, free } = await stillLocked(client, this.#table, this.#claiming.locked);
      this.#claiming.locked = locked;
      for (const task of free) this.#lookout.offer(task);
    } catch (error) {
      this.#weigh(error);
    }
  }

  /**
   * @param room how many tasks may be started, and how many more are counted.
   * @param room.watch whether somebody may have deleted what runs, or set its state.
   * @param room.told whether a change of the table was told.
   * @throws what the server said when it is nothing that the next turn could make better.
   */
  async once(
    client: Client,
    settings: ManagerSettings,
    room: {
      readonly start: number;
      readonly lookAhead: number;
      readonly watch: boolean;
      readonly told: boolean;
    },
  ): Promise<CycleOutcome> {
    const since = performance.now();
    await adjustLockWait(client);
    // Read before anything is sent: what is sent together has to go out in this order.
    await this.#completing.prepare(client);
    // What that takes back is given back at once.
    await this.#takeBack(client);
    const pressed = this.#pressed;
    const looking = { pressed, watch: room.watch, except: this.#claiming.passedOver };
    this.#completing.startLarge(client);
    const results = this.#outbox.takeResults();
    const returns = this.#outbox.takeReturns();
    const early = this.#mayClaimEarly(results, returns);
    this.#writing = true;
    const outcomes = await inOneWrite(client, () =>
      Promise.allSettled([
        // First, so that a pause after a run finds all that is due.
        this.#lookout.promote(client),
        // Before results: a task that has ended has no process any more.
        this.#showRemote(client),
        this.#showStarted(client),
        this.#completing.write(client, results),
        this.#giveBack(client, returns),
        // After results: a task that was planned anew while it ran is due again.
        early && room.watch && !pressed ? this.#claiming.startSole(client, room) : 0,
        this.#lookout.look(client, looking),
        this.#lookout.nearest(client, pressed),
        this.#cancelUnwanted(client, room),
        this.#recalls.permit(client),
        early && pressed ? this.#claim(client, settings, room) : null,
      ]),
    );
    this.#writing = false;
    const problems = outcomes.flatMap((each) =>
      each.status === "rejected" ? [each.reason as unknown] : [],
    );
    for (const problem of problems) this.#weigh(problem);
    const [promoted, , , , , sole, looked, , , , claimedEarly] = outcomes;
    const started = sole.status === "fulfilled" ? sole.value : 0;
    const claimed =
      claimedEarly.status === "fulfilled" && claimedEarly.value !== null
        ? claimedEarly.value
        : await this.#claim(client, settings, room);
    const late = looked.status === "fulfilled" ? looked.value.gone : [];
    this.#sessions.markSpare();
    const { gone, again } = await this.#expire(client, settings, [...late, ...claimed.gone]);
    this.#tell(since);
    if (gone > 0)
      this.#log.info({ tasks: gone }, "tasks not run since they were not active any more");
    return {
      claimed: started + claimed.claimed,
      more: claimed.more,
      gone,
      ended: results.length,
      again:
        again ||
        // Behind a locked task there may be one of its group that can start.
        claimed.locked > 0 ||
        claimed.again ||
        !this.#outbox.empty ||
        this.#mustWrite ||
        (looked.status === "fulfilled" && looked.value.again) ||
        (promoted.status === "fulfilled" && promoted.value),
      nearestMs: this.#lookout.nearestMs,
      putOff: problems.length > 0,
    };
  }

  /** All tasks of the table wait for a turn: a trigger of the user's may be what takes so long. */
  #tell(since: number): void {
    const now = performance.now();
    if (now - since < longTurnMs || now - this.#toldAt < tellEveryMs) return;
    this.#toldAt = now;
    this.#log.warn({ ms: Math.round(now - since) }, "a turn of the manager took long");
  }

  /** Whether nothing of this turn could put another task before those that are known to be next. */
  #mayClaimEarly(results: readonly OwnedResult[], returns: readonly ReleasedTask[]): boolean {
    return (
      returns.length === 0 &&
      !this.#lookout.promotes &&
      results.every(({ pauses }) => pauses === undefined)
    );
  }

  /**
   * Writes what came out, and cancels what is not wanted any more: all that is left to do for a manager
   * that starts nothing more, while another one may have the table.
   *
   * @returns whether there is more to write.
   */
  async finish(client: Client): Promise<boolean> {
    await this.#completing.prepare(client);
    await this.#takeBack(client);
    this.#completing.startLarge(client);
    const results = this.#outbox.takeResults();
    const returns = this.#outbox.takeReturns();
    this.#writing = true;
    const outcomes = await inOneWrite(client, () =>
      Promise.allSettled([
        this.#showRemote(client),
        this.#showStarted(client),
        this.#completing.write(client, results),
        this.#giveBack(client, returns),
        this.#cancelUnwanted(client, { watch: true, told: true }),
        this.#recalls.permit(client),
      ]),
    );
    this.#writing = false;
    for (const each of outcomes) if (each.status === "rejected") this.#weigh(each.reason);
    return !this.#outbox.empty || this.#mustWrite;
  }

  /** Whether there is something to tell the server or its rows, results aside. */
  get #mustWrite(): boolean {
    return !this.#remotePids.empty || !this.#starts.empty || this.#recalls.pending;
  }

  /** Whether every session is busy, and the next turn will come as soon as one has less to do. */
  get #pressed(): boolean {
    const { free, busy, tasks } = this.#sessions;
    return free === 0 && busy > 0 && (this.#groups.startable > 0 || tasks > busy);
  }

  async #showRemote(client: Client): Promise<void> {
    await this.#show(client, this.#remotePids, (places) =>
      showRemotePids(client, this.#table, places),
    );
  }

  async #showStarted(client: Client): Promise<void> {
    await this.#show(client, this.#starts, (tasks) => showStarted(client, this.#table, tasks));
  }

  /** What the server refuses to show stays as it is: the run's end is written all the same. */
  async #show<Shown extends OwnedTask>(
    client: Client,
    waiting: { take(): Shown[]; hold(tasks: readonly Shown[]): void },
    show: (tasks: readonly Shown[]) => Promise<ReadonlySet<string>>,
  ): Promise<void> {
    const tasks = waiting.take();
    const open = new Set(tasks);
    try {
      await singleOut(
        client,
        tasks,
        async (some) => {
          const locked = await show(some);
          for (const task of some) if (!locked.has(task.id)) open.delete(task);
        },
        (task, error) => {
          if (isTransient(error)) return;
          this.#log.warn({ id: task.id, reason: toReport(error).message }, "run cannot be shown");
          open.delete(task);
        },
      );
    } finally {
      waiting.hold([...open]);
    }
  }

  async #expire(
    client: Client,
    settings: ManagerSettings,
    hashes: readonly number[],
  ): Promise<{ readonly gone: number; readonly again: boolean }> {
    try {
      const { refusals, passedOver: except } = this.#claiming;
      const known = { except, refusals };
      const { gone, locked, again } = await expireTasks(
        client,
        this.#table,
        hashes,
        settings.batch,
        known,
      );
      if (locked.length > 0) this.#claiming.locked = [...this.#claiming.locked, ...locked];
      return { gone, again };
    } catch (error) {
      this.#weigh(error);
      return { gone: 0, again: false };
    }
  }

  async #cancelUnwanted(
    client: Client,
    { watch, told }: { readonly watch: boolean; readonly told: boolean },
  ): Promise<void> {
    const { tasks, busy } = this.#sessions;
    const now = performance.now();
    const sinceMs = now - this.#watchedAt;
    this.#unwatched ||= watch;
    this.#told ||= told;
    const mayHaveWaited = tasks > busy && sinceMs >= watchWaitingMs;
    if (!this.#unwatched && !mayHaveWaited) return;
    if (tasks > fewTasks && sinceMs < watchMs) return;
    const running = this.#unwatched ? this.#sessions.running() : [];
    const waiting = this.#sessions.waiting(this.#told ? 0 : watchWaitingMs);
    const recalling = this.#unwatched && this.#sessions.recalling;
    this.#unwatched = false;
    this.#told = false;
    this.#watchedAt = now;
    // Until it is known how it went another look is due.
    let [again, all] = [true, true];
    try {
      const [ended, changed] = await Promise.all([
        running.length > 0 ? unwantedRuns(client, this.#table, running) : [],
        waiting.length > 0 ? changedTasks(client, this.#table, waiting) : [],
      ]);
      for (const id of ended) this.#sessions.cancel(id);
      this.#sessions.recall(changed, false);
      // What has begun meanwhile, also of what was being called back, is cancelled by the next look; what of
      // that stays where it is after all was not compared by this one.
      all = changed.length > 0 || recalling;
      again = all;
    } finally {
      this.#unwatched ||= again;
      this.#told ||= all;
    }
  }

  async #takeBack(client: Client): Promise<void> {
    if (!this.#recalls.pending) return;
    try {
      await this.#recalls.send(client);
    } catch (error) {
      this.#weigh(error);
    }
  }

  async #claim(
    client: Client,
    settings: ManagerSettings,
    room: { readonly start: number; readonly lookAhead: number },
  ): Promise<ClaimOutcome> {
    const { fetch, limit } = settings;
    try {
      return await this.#claiming.fill(client, { ...room, fetch, limit });
    } catch (error) {
      this.#weigh(error);
      return { claimed: 0, more: 0, gone: [], locked: 0, again: false };
    }
  }

  async #giveBack(client: Client, returns: readonly ReleasedTask[]): Promise<void> {
    const open = new Set(returns);
    try {
      const left = await singleOut(
        client,
        returns,
        async (some) => {
          await this.#giveBackAll(client, some);
          for (const task of some) open.delete(task);
        },
        (task, error) => {
          const message = "return to PLAN refused by the server, it is tried again";
          const until = this.#refusedReturns.add(task.id, error, message);
          this.#outbox.hold([], [task], until, !isTransient(error));
          open.delete(task);
        },
      );
      this.#outbox.putBehind([], left);
    } catch (error) {
      this.#outbox.hold([], [...open]);
      throw error;
    }
  }

  async #giveBackAll(client: Client, returns: readonly ReleasedTask[]): Promise<void> {
    const locked = await releaseTasks(client, this.#table, returns);
    this.#outbox.hold(
      [],
      returns.filter((task) => locked.has(task.id)),
    );
    for (const { id, due } of returns) {
      this.#refusedReturns.delete(id);
      if (locked.has(id)) continue;
      this.#tracing?.returned(id);
      if (due === undefined) this.#lookout.change();
      else this.#lookout.offer({ id, ...due });
    }
  }

  #weigh(problem: unknown): void {
    if (!isTransient(problem)) throw problem;
    this.#log.debug({ err: problem }, "turn put off");
  }
}
