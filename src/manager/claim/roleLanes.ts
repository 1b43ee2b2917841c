import type { DatabaseError } from "pg";
import { Backoff } from "../../shared/backoff.js";
import type { ErrorReport } from "../../shared/errors.js";
import { lockClasses, textLockKey } from "../../shared/postgres/advisoryLocks.js";
import type { Client } from "../../shared/postgres/client.js";
import { endUnrun } from "../groups/endUnrun.sql.js";
import { readColumnSet } from "../schema/columnSet.js";
import type { PoolScaler } from "../sessions/poolScaler.js";
import type { RoleLogins } from "../sessions/roleLogins.js";
import { readDueInLane } from "../sessions/roles.sql.js";
import { rejectedRepeatNote } from "../sql/omissions.js";
import { changeRows, tryInOrder } from "../sql/rejectedRows.js";
import { ShownLocks } from "../sql/shownLocks.sql.js";
import type { ClaimComponents } from "./claimComponents.js";
import { placeGroups } from "./placeGroups.sql.js";
import { noClaim, type ClaimOutcome } from "./claimer.js";

interface Lane {
  /** How many more of its tasks could start if there were sessions, as of the last claim. */
  more: number;
  max: number;
  readonly backoff: Backoff;
  notBefore: number;
  /** The last reason why no session could be opened. Null since one was opened. */
  failure: string | null;
}

type Components = Pick<ClaimComponents, "table" | "groups" | "sessions" | "owed" | "log"> & {
  readonly poolScaler: PoolScaler;
  readonly roleLogins: RoleLogins;
  readonly restartMs: number;
};

/** Tasks that fail together because their role cannot log in. */
const maxRefused = 1000;

/**
 * With users, a task runs only in a session of its role. So the groups and the sessions are divided into lanes, one for
 * each role and one for the table's owner, and a cycle claims for one lane after another. A role whose login fails delays
 * no other, and one with many sessions gives one up for a role that has none.
 */
export class RoleLanes {
  readonly #components: Components;
  /** The one for which sessions have been opened last comes last. */
  readonly #lanes = new Map<string | null, Lane>();
  /** The lane that comes first in the next cycle. */
  #turn = 0;
  /** When the claims of the cycle began. */
  #claimedAt = 0;
  readonly #shownRefusals: ShownLocks;

  constructor(components: Components) {
    this.#components = components;
    this.#shownRefusals = new ShownLocks(lockClasses.rolesRefused, "refused roles", components.log);
  }

  get isUsed(): boolean {
    return this.#components.table.usersOwner !== null;
  }

  /** Called once the table is known to have users. */
  begin(): void {
    if (!this.isUsed) return;
    this.#components.groups.ranking.splitLanes();
    this.#enter(null);
  }

  /** Whether a task of the group waits for its role's session, for a known reason. */
  isHeldUp(hash: number): boolean {
    const lane = this.#components.groups.get(hash)?.lane;
    const state = lane === undefined ? undefined : this.#lanes.get(lane);
    if (lane === undefined || state === undefined) return false;
    return state.failure !== null || this.#components.sessions.isLaneFull(lane, state.max);
  }

  /** Time until sessions of a lane with due tasks may be opened again, in ms. */
  get pauseMs(): number {
    const now = performance.now();
    const pauses = [...this.#lanes.values()].flatMap(({ more, notBefore }) =>
      more > 0 && notBefore > now ? notBefore - now : [],
    );
    return Math.min(...pauses);
  }

  opened(role: string | null): void {
    const lane = this.#lane(role);
    if (lane.failure !== null) this.#components.log.info({ role }, "the server accepts new sessions of a role again");
    lane.failure = null;
    lane.notBefore = 0;
    lane.backoff.reset();
  }

  openFailed(role: string | null, reason: Pick<ErrorReport, "code" | "message">): void {
    if (role !== null && reason.code === "CONNECTION_REJECTED") this.#components.roleLogins.rejected(role);
    this.#failed(role, reason.message);
  }

  /** @param claimOne claims for the lane that has been entered */
  async claimEach(client: Client, claimOne: () => Promise<ClaimOutcome>): Promise<ClaimOutcome> {
    const { groups, table } = this.#components;
    if (groups.ranking.hasUnknown) await placeGroups(client, table, groups);
    this.#claimedAt = performance.now();
    for (const lane of this.#lanes.values()) lane.more = 0;
    const lanes = groups.ranking.startableLanes;
    this.#turn = lanes.length === 0 ? 0 : (this.#turn + 1) % lanes.length;
    let total = noClaim;
    try {
      for (const role of [...lanes.slice(this.#turn), ...lanes.slice(0, this.#turn)]) {
        this.#enter(role);
        const outcome = await claimOne();
        const more = Math.max(outcome.more, this.#lacksSession ? 1 : 0);
        this.#lane(role).more = more;
        total = {
          claimed: total.claimed + outcome.claimed,
          more: total.more + more,
          lateGroups: [...total.lateGroups, ...outcome.lateGroups],
          locked: total.locked + outcome.locked,
          again: total.again || outcome.again,
        };
      }
    } finally {
      this.#enter(null);
    }
    return total;
  }

  /** Whether the lane waits for its first session. Once it is known that many sessions are wanted, claims count none. */
  get #lacksSession(): boolean {
    const { groups, poolScaler, sessions } = this.#components;
    return poolScaler.isDemandKnown && groups.startable.size > 0 && sessions.laneSize === 0;
  }

  /** Opens sessions for the lanes whose tasks need some. Returns whether tasks have failed, so that others may be next. */
  async grow(client: Client): Promise<boolean> {
    const sizes = this.#components.sessions.laneSizes;
    // The lane that another has given up a session for comes first, or the other would open one again.
    const wanting = [...this.#lanes]
      .filter(([, { more }]) => more > 0)
      .toSorted(([a], [b]) => (sizes.get(a) ?? 0) - (sizes.get(b) ?? 0));
    const more = wanting.reduce((sum, [, lane]) => sum + lane.more, 0);
    if (more === 0) await this.#components.poolScaler.grow(client, 0);
    let hasFailed = false;
    try {
      for (const [role, lane] of wanting) {
        this.#enter(role);
        hasFailed = (await this.#growLane(client, role, lane, more)) || hasFailed;
      }
    } finally {
      this.#enter(null);
    }
    const refused = wanting.flatMap(([role, { failure }]) => (role === null || failure === null ? [] : role));
    await this.#shownRefusals.show(client, refused.map(textLockKey));
    return hasFailed;
  }

  async #growLane(client: Client, role: string | null, lane: Lane, more: number): Promise<boolean> {
    const { poolScaler, roleLogins, sessions } = this.#components;
    if (sessions.laneOpening > 0 || performance.now() < lane.notBefore) return false;
    if (role !== null) {
      const login = await roleLogins.prepare(client, role);
      if (login.state === "refused") return await this.#failDue(client, role, login.reason);
      if (login.state === "failed") this.#failed(role, login.reason);
      if (login.state !== "ready") return false;
      lane.max = login.max;
    }
    const { laneSize } = sessions;
    const wanted = Math.min(lane.more, Math.max(1, laneSize), lane.max - laneSize);
    if (wanted <= 0) return false;
    const room = await poolScaler.roomFor(client, { wanted, more });
    if (room > 0) {
      this.#lanes.delete(role);
      this.#lanes.set(role, lane);
      sessions.open(room, role);
    } else if (sessions.closing === 0) sessions.giveUpOne(role, laneSize === 0, this.#claimedAt);
    return false;
  }

  /** Lets the due tasks of a role fail that nobody can run. */
  async #failDue(client: Client, role: string, reason: string): Promise<boolean> {
    const { groups, log, owed, table } = this.#components;
    const ids = await readDueInLane(client, table, { hashes: groups.hashesIn(role), lane: role, limit: maxRefused });
    if (ids.length === 0) return false;
    const columns = await readColumnSet(client, table);
    const failed = `ERROR:  tasks of role ${JSON.stringify(role)} cannot run: ${reason}\nSQLSTATE:  28000`;
    const end = async (some: readonly string[], unrepeated: string | null): Promise<void> => {
      await endUnrun(client, table, columns, some, { failed, unrepeated });
    };
    await changeRows(
      client,
      ids,
      (some) => end(some, null),
      async (id: string, error: DatabaseError) => {
        const rejection = await tryInOrder(error, [(last) => end([id], rejectedRepeatNote(last))]);
        if (rejection === null) owed.touch();
      },
    );
    log.warn({ role, tasks: ids.length, reason }, "tasks failed, their role cannot run them");
    return true;
  }

  #failed(role: string | null, reason: string): void {
    const lane = this.#lane(role);
    const { log, restartMs } = this.#components;
    if (lane.failure !== reason) log.warn({ role, reason }, "cannot open a session of a role, its tasks wait");
    lane.failure = reason;
    if (performance.now() >= lane.notBefore)
      lane.notBefore = performance.now() + Math.min(lane.backoff.next(), restartMs);
  }

  #enter(role: string | null): void {
    this.#components.groups.ranking.enterLane(role);
    this.#components.sessions.enterLane(role);
  }

  #lane(role: string | null): Lane {
    let lane = this.#lanes.get(role);
    if (lane === undefined) {
      const backoff = new Backoff({ firstMs: 100, maxMs: Infinity });
      this.#lanes.set(role, (lane = { more: 0, max: Infinity, backoff, notBefore: 0, failure: null }));
    }
    return lane;
  }
}
