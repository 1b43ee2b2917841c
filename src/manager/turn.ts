import { inOneWrite, type Client } from "../shared/database.js";
import type { Log } from "../shared/log.js";
import type { Groups } from "./groups.js";
import type { Outbox, ReturnedTask } from "./outbox.js";
import { isPassing } from "./passing.js";
import type { Pauses } from "./pauses.js";
import type { RemotePids } from "./remotePids.js";
import type { Claiming, Claimed } from "./claiming.js";
import { Completing } from "./completing.js";
import type { LargeResults } from "./largeResults.js";
import type { Lookout } from "./lookout.js";
import type { Sessions } from "./sessions.js";
import type { Starts } from "./starts.js";
import type { ManagerSettings } from "./settings.js";
import { readShape } from "./shape.js";
import type { OwnedResult } from "./sql/complete.js";
import { expire } from "./sql/expire.js";
import { giveBack } from "./sql/giveBack.js";
import { showStarted } from "./sql/showStarted.js";
import { stillLocked } from "./sql/stillLocked.js";
import { unwanted } from "./sql/unwanted.js";
import { showRemotePids } from "./sql/remotePid.js";
import type { TaskTable } from "./table.js";
import type { Tracing } from "./tracing.js";

export interface TurnOutcome {
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
 * One turn of the manager: writes what came out, marks and looks what became due, all of it in one
 * round trip; then gives due tasks to sessions. As long as sessions are busy and the next tasks are
 * known, those are claimed in the same round trip already; so is the only task that is due while nothing runs.
 */
export class Turn {
  readonly #table: TaskTable;
  readonly #sessions: Sessions;
  readonly #groups: Groups;
  readonly #outbox: Outbox;
  readonly #remotePids: RemotePids;
  readonly #pauses: Pauses;
  readonly #log: Log;
  readonly #lookout: Lookout;
  readonly #claiming: Claiming;
  readonly #starts: Starts;
  readonly #completing: Completing;
  readonly #tracing: Tracing | null;
  /** Whether somebody may have stopped or deleted what sessions have, and when that was last looked at. */
  #unwatched = false;
  #watchedAt = 0;
  /** Whether what the outbox has handed out is on its way. */
  #writing = false;

  constructor(options: {
    readonly table: TaskTable;
    readonly sessions: Sessions;
    readonly groups: Groups;
    readonly outbox: Outbox;
    readonly remotePids: RemotePids;
    readonly pauses: Pauses;
    readonly lookout: Lookout;
    readonly claiming: Claiming;
    readonly starts: Starts;
    readonly large?: LargeResults;
    readonly tracing?: Tracing | null;
    readonly log: Log;
  }) {
    this.#table = options.table;
    this.#sessions = options.sessions;
    this.#groups = options.groups;
    this.#outbox = options.outbox;
    this.#remotePids = options.remotePids;
    this.#pauses = options.pauses;
    this.#lookout = options.lookout;
    this.#claiming = options.claiming;
    this.#starts = options.starts;
    this.#tracing = options.tracing ?? null;
    this.#completing = new Completing({
      ...options,
      large: options.large ?? null,
      tracing: this.#tracing,
    });
    this.#log = options.log;
  }

  /** Whether all that came out is in its rows. */
  get written(): boolean {
    return !this.#writing && this.#outbox.size === 0;
  }

  /** Whether something waits for rows that somebody has locked, or is being written beside the turns. */
  get waiting(): boolean {
    const { held, large } = this.#outbox;
    return this.#claiming.passedOver.length > 0 || held > 0 || large > 0 || this.#pauses.size > 0;
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
   * @param room.watch whether somebody may have stopped or deleted what runs.
   * @throws what the server said when it is nothing that the next turn could make better.
   */
  async once(
    client: Client,
    settings: ManagerSettings,
    room: { readonly start: number; readonly lookAhead: number; readonly watch: boolean },
  ): Promise<TurnOutcome> {
    // Read before anything is sent: what is sent together has to go out in this order.
    await this.#completing.prepare(client);
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
        this.#cancelUnwanted(client, room.watch),
        early && pressed ? this.#claim(client, settings, room) : null,
      ]),
    );
    this.#writing = false;
    const problems = outcomes.flatMap((each) =>
      each.status === "rejected" ? [each.reason as unknown] : [],
    );
    for (const problem of problems) this.#weigh(problem);
    const [promoted, , , , , sole, looked, , , claimedEarly] = outcomes;
    const started = sole.status === "fulfilled" ? sole.value : 0;
    const claimed =
      claimedEarly.status === "fulfilled" && claimedEarly.value !== null
        ? claimedEarly.value
        : await this.#claim(client, settings, room);
    const late = looked.status === "fulfilled" ? looked.value.gone : [];
    const gone = await this.#expire(client, settings, [...late, ...claimed.gone]);
    if (gone > 0)
      this.#log.info({ tasks: gone }, "tasks not run since they were not active any more");
    return {
      claimed: started + claimed.claimed,
      more: claimed.more,
      gone,
      ended: results.length,
      again:
        gone > 0 ||
        // Behind a locked task there may be one of its group that can start.
        claimed.locked > 0 ||
        !this.#outbox.empty ||
        !this.#remotePids.empty ||
        !this.#starts.empty ||
        (looked.status === "fulfilled" && looked.value.again) ||
        (promoted.status === "fulfilled" && promoted.value),
      nearestMs: this.#lookout.nearestMs,
      putOff: problems.length > 0,
    };
  }

  /** Whether nothing of this turn could put another task before those that are known to be next. */
  #mayClaimEarly(results: readonly OwnedResult[], returns: readonly ReturnedTask[]): boolean {
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
        this.#cancelUnwanted(client, true),
      ]),
    );
    this.#writing = false;
    for (const each of outcomes) if (each.status === "rejected") this.#weigh(each.reason);
    return !this.#outbox.empty || !this.#remotePids.empty || !this.#starts.empty;
  }

  /** Whether every session is busy, and the next turn will come as soon as one has less to do. */
  get #pressed(): boolean {
    const { free, busy, tasks } = this.#sessions;
    return free === 0 && busy > 0 && (this.#groups.startable > 0 || tasks > busy);
  }

  async #showRemote(client: Client): Promise<void> {
    const places = this.#remotePids.take();
    if (places.length === 0) return;
    try {
      const locked = await showRemotePids(client, this.#table, places);
      this.#remotePids.hold(places.filter(({ id }) => locked.has(id)));
    } catch (error) {
      this.#remotePids.hold(places);
      throw error;
    }
  }

  async #showStarted(client: Client): Promise<void> {
    const tasks = this.#starts.take();
    if (tasks.length === 0) return;
    try {
      const locked = await showStarted(client, this.#table, tasks);
      this.#starts.hold(tasks.filter(({ id }) => locked.has(id)));
    } catch (error) {
      this.#starts.hold(tasks);
      throw error;
    }
  }

  async #expire(
    client: Client,
    settings: ManagerSettings,
    hashes: readonly number[],
  ): Promise<number> {
    if (hashes.length === 0) return 0;
    try {
      const shape = await readShape(client, this.#table);
      return await expire(client, this.#table, shape, hashes, settings.batch);
    } catch (error) {
      this.#weigh(error);
      return 0;
    }
  }

  async #cancelUnwanted(client: Client, watch: boolean): Promise<void> {
    this.#unwatched ||= watch;
    if (!this.#unwatched) return;
    const now = performance.now();
    if (this.#sessions.tasks > fewTasks && now - this.#watchedAt < watchMs) return;
    this.#unwatched = false;
    this.#watchedAt = now;
    const running = this.#sessions.running();
    if (running.length === 0) return;
    for (const id of await unwanted(client, this.#table, running)) this.#sessions.cancel(id);
  }

  async #claim(
    client: Client,
    settings: ManagerSettings,
    room: { readonly start: number; readonly lookAhead: number },
  ): Promise<Claimed> {
    const { fetch, limit } = settings;
    try {
      return await this.#claiming.fill(client, { ...room, fetch, limit });
    } catch (error) {
      this.#weigh(error);
      return { claimed: 0, more: 0, gone: [], locked: 0 };
    }
  }

  async #giveBack(client: Client, returns: readonly ReturnedTask[]): Promise<void> {
    if (returns.length === 0) return;
    try {
      const locked = await giveBack(client, this.#table, returns);
      this.#outbox.hold(
        [],
        returns.filter((task) => locked.has(task.id)),
      );
      for (const { id, due } of returns) {
        if (locked.has(id)) continue;
        this.#tracing?.returned(id);
        if (due === undefined) this.#lookout.change();
        else this.#lookout.offer({ id, ...due });
      }
    } catch (error) {
      this.#outbox.hold([], returns);
      throw error;
    }
  }

  #weigh(problem: unknown): void {
    if (!isPassing(problem)) throw problem;
    this.#log.debug({ err: problem }, "turn put off");
  }
}
