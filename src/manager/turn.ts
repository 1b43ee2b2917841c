import { sqlState, type Client } from "../shared/database.js";
import type { Log } from "../shared/log.js";
import type { Groups } from "./groups.js";
import type { Outbox } from "./outbox.js";
import { isPassing } from "./passing.js";
import type { RemotePids } from "./remotePids.js";
import type { OfferedSession, Sessions } from "./sessions.js";
import type { ManagerSettings } from "./settings.js";
import { readShape, type Shape } from "./shape.js";
import { claim, type Claim } from "./sql/claim.js";
import { complete, type OwnedResult } from "./sql/complete.js";
import { expire } from "./sql/expire.js";
import { giveBack, type OwnedTask } from "./sql/giveBack.js";
import { nearestPlan } from "./sql/nearestPlan.js";
import { promote } from "./sql/promote.js";
import { stillLocked } from "./sql/stillLocked.js";
import { unwanted } from "./sql/unwanted.js";
import { showRemotePids } from "./sql/remotePid.js";
import { storable } from "./storable.js";
import type { TaskTable } from "./table.js";

export interface TurnOutcome {
  /** How many tasks were started. */
  readonly claimed: number;
  /** How many more could start had they a session. */
  readonly more: number;
  /** How many were not active any more. */
  readonly gone: number;
  /** Whether another turn has something to do right away. */
  readonly again: boolean;
  /** Time until the next task becomes due, in ms, null when none is planned. */
  readonly nearestMs: number | null;
}

/**
 * One turn of the manager: writes what came out, marks what became due, gives due tasks to free
 * sessions. All of it is sent at once, so that a turn costs one round trip.
 */
export class Turn {
  readonly #table: TaskTable;
  readonly #sessions: Sessions;
  readonly #groups: Groups;
  readonly #outbox: Outbox;
  readonly #remotePids: RemotePids;
  readonly #log: Log;
  /** Due tasks whose row somebody has locked: not looked at until `release` finds them free. */
  #locked: string[] = [];
  /** Null when it has to be read anew. */
  #shape: Shape | null = null;
  /** Results that the server refused: said once, not at each try. */
  readonly #refused = new Set<string>();

  constructor(options: {
    readonly table: TaskTable;
    readonly sessions: Sessions;
    readonly groups: Groups;
    readonly outbox: Outbox;
    readonly remotePids: RemotePids;
    readonly log: Log;
  }) {
    this.#table = options.table;
    this.#sessions = options.sessions;
    this.#groups = options.groups;
    this.#outbox = options.outbox;
    this.#remotePids = options.remotePids;
    this.#log = options.log;
  }

  /** Whether something waits for rows that somebody has locked. */
  get waiting(): boolean {
    return this.#locked.length > 0 || this.#outbox.held > 0;
  }

  /** Offers what is not locked any more; to be called from time to time. */
  async release(client: Client): Promise<void> {
    this.#outbox.release();
    this.#remotePids.release();
    if (this.#locked.length === 0) return;
    try {
      this.#locked = await stillLocked(client, this.#table, this.#locked);
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
    const shape = (this.#shape ??= await readShape(client, this.#table));
    const most = Math.min(room.start, settings.fetch, settings.limit);
    const offered = this.#sessions.offer(most);
    const results = this.#outbox.takeResults();
    const returns = this.#outbox.takeReturns();
    const [promoted, shown, written, returned, claiming, nearest, watched] =
      await Promise.allSettled([
        // First, so that a pause after a run finds all that is due.
        promote(client, this.#table),
        // Before results: a task that has ended has no process any more.
        this.#showRemote(client),
        this.#write(client, shape, results),
        returns.length === 0 ? new Set<string>() : giveBack(client, this.#table, returns),
        this.#claim(client, offered, room.lookAhead),
        nearestPlan(client, this.#table),
        room.watch ? this.#cancelUnwanted(client) : null,
      ]);
    this.#settleReturns(returns, returned);
    const { claimed, gone: unable, more, locked } = this.#settleClaim(offered, claiming);
    const problems = [promoted, shown, written, returned, claiming, nearest, watched].flatMap(
      (each) => (each.status === "rejected" ? [each.reason as unknown] : []),
    );
    for (const problem of problems) this.#weigh(problem);
    const gone = unable > 0 ? await this.#expire(client, settings) : 0;
    if (gone > 0)
      this.#log.info({ tasks: gone }, "tasks not run since they were not active any more");
    return {
      claimed: claimed.length,
      more,
      gone,
      again:
        gone > 0 ||
        // Behind a locked task there may be one of its group that can start.
        locked.length > 0 ||
        !this.#outbox.empty ||
        !this.#remotePids.empty ||
        (promoted.status === "fulfilled" && promoted.value) ||
        (claimed.length === most && more > 0),
      nearestMs: nearest.status === "fulfilled" ? nearest.value : null,
    };
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

  async #expire(client: Client, settings: ManagerSettings): Promise<number> {
    try {
      this.#shape = await readShape(client, this.#table);
      return await expire(client, this.#table, this.#shape, settings.batch);
    } catch (error) {
      this.#weigh(error);
      return 0;
    }
  }

  async #cancelUnwanted(client: Client): Promise<void> {
    const running = this.#sessions.running();
    if (running.length === 0) return;
    for (const id of await unwanted(client, this.#table, running)) this.#sessions.cancel(id);
  }

  async #claim(
    client: Client,
    offered: readonly OfferedSession[],
    lookAhead: number,
  ): Promise<Claim> {
    if (offered.length + lookAhead === 0) return nothing;
    return await claim(client, this.#table, {
      sessions: offered,
      running: this.#groups.running,
      lookAhead,
      except: this.#locked,
    });
  }

  #settleClaim(offered: readonly OfferedSession[], outcome: PromiseSettledResult<Claim>): Claim {
    if (outcome.status === "rejected") {
      this.#sessions.withdraw(offered);
      return nothing;
    }
    const { claimed, locked } = outcome.value;
    this.#locked.push(...locked);
    const numbers = new Map(offered.map((session) => [session.owner, session.number]));
    const runs = claimed.flatMap(({ owner, ...task }) => {
      const session = numbers.get(owner);
      return session === undefined ? [] : [{ ...task, session, ledger: 1 as const }];
    });
    for (const run of runs) {
      this.#log.debug({ id: run.id, group: run.group }, "task starts");
      this.#groups.begin(run.hash);
    }
    const missed = new Set(this.#sessions.assign(runs).map((run) => run.id));
    this.#sessions.settle(offered);
    for (const { id, owner, hash } of claimed) {
      if (!missed.has(id)) continue;
      this.#groups.end(hash);
      this.#outbox.putBack([], [{ id, owner }]);
    }
    return outcome.value;
  }

  #settleReturns(
    returns: readonly OwnedTask[],
    outcome: PromiseSettledResult<ReadonlySet<string>>,
  ): void {
    if (outcome.status === "rejected") this.#outbox.hold([], returns);
    else
      this.#outbox.hold(
        [],
        returns.filter((task) => outcome.value.has(task.id)),
      );
  }

  /**
   * Writes results. When the server refuses them (a trigger of the user's on one of the rows), they
   * are tried in halves, so that one row holds up no other. One with characters that the database
   * cannot store is written without them, as FAIL.
   */
  async #write(client: Client, shape: Shape, results: readonly OwnedResult[]): Promise<void> {
    if (results.length === 0) return;
    try {
      const { later: locked, outdated } = await complete(client, this.#table, shape, results);
      if (outdated) this.#shape = null;
      for (const { id } of results) this.#refused.delete(id);
      const rest = results.filter((result) => locked.has(result.id));
      if (outdated) this.#outbox.putBack(rest, []);
      else this.#outbox.hold(rest, []);
    } catch (error) {
      if (sqlState(error) === null || isPassing(error)) {
        this.#outbox.hold(results, []);
        throw error;
      }
      const outdated = await this.#outdated(client, shape).catch((lost: unknown) => {
        this.#outbox.hold(results, []);
        throw lost;
      });
      if (outdated) {
        this.#outbox.putBack(results, []);
        return;
      }
      if (results.length > 1) {
        const middle = results.length >> 1;
        try {
          await this.#write(client, shape, results.slice(0, middle));
        } finally {
          await this.#write(client, shape, results.slice(middle));
        }
        return;
      }
      for (const result of results) await this.#writeStorable(client, shape, result, error);
    }
  }

  async #writeStorable(
    client: Client,
    shape: Shape,
    refused: OwnedResult,
    error: unknown,
  ): Promise<void> {
    const rest = storable(refused, error);
    if (rest !== null) return await this.#write(client, shape, [rest]);
    this.#sayRefused(refused.id, error);
    this.#outbox.hold([refused], []);
  }

  /** Whether columns were dropped or renamed: what was sent named those of before. */
  async #outdated(client: Client, sent: Shape): Promise<boolean> {
    const shape = await readShape(client, this.#table);
    if (shape.name === sent.name) return false;
    this.#shape = shape;
    return true;
  }

  #sayRefused(id: string, error: unknown): void {
    if (this.#refused.has(id)) return;
    this.#refused.add(id);
    this.#log.error({ id, err: error }, "result refused by the server, it is tried again");
  }

  #weigh(problem: unknown): void {
    if (!isPassing(problem)) throw problem;
    this.#log.debug({ err: problem }, "turn put off");
  }
}

const nothing: Claim = { claimed: [], gone: 0, more: 0, locked: [] };
