import type { Log } from "../log.js";
import { isOwnerSql, isTrustedSql, ownerSql } from "./backendIdentity.js";
import { sqlState, type Client } from "./client.js";
import { insufficientPrivilege } from "./sqlStates.js";

/** The longest time between two questions to a holder that answers, in ms. */
const maxAskMs = 10_000;
/** How often a holder that does not answer because its backend is working is looked at, in ms. */
const lookAgainMs = 1_000;

export interface Holder {
  readonly pid: number;
  readonly name: string;
  readonly user: string | null;
  readonly isPgTask: boolean;
  readonly isTrusted: boolean;
  readonly address: string | null;
  readonly owner: string | null;
  /** Whether the backend is working, as far as this role can see. It then passes the question on later. */
  readonly works: boolean;
}

interface FrozenHolderOptions {
  /** The second key is an SQL expression for an integer. */
  readonly lock: { readonly class: number; readonly key: string };
  readonly isPgTaskSql: (name: string) => string;
  readonly frozenMs: () => number;
  /**
   * The log lines for a frozen holder that was ended, and one that this role may not end; and for a holder of another
   * role or program that keeps the lock, and one that was ended.
   */
  readonly lines: {
    readonly ended: string;
    readonly refused: string;
    readonly foreign: string;
    readonly foreignEnded: string;
  };
  readonly fields: Readonly<Record<string, unknown>>;
  readonly ended: () => void;
  readonly log: Log;
}

/**
 * Ends the connection of a frozen process (SIGSTOP, `docker pause`, a debugger) that holds a lock: one that does not
 * answer although the server has passed the question on to it. Its kernel keeps its connections open.
 *
 *     quiet ──a while without an answer──▶ asked ──not answered, backend idle──▶ terminated
 *       ▲                                    │  ▲                │
 *       └──────────────answered──────────────┘  └─backend works──┘
 *
 * Any role that may connect can take the lock. A holder with neither the name of a pg-task nor a trusted role is no
 * pg-task, and is terminated without being asked. If only one of the two is missing, it may be one, so it is named in the
 * log and otherwise treated like any other.
 *
 * Time is counted in calls of `check`: after a suspension of this process, the holder is not taken for frozen.
 */
export class FrozenHolder {
  readonly #client: Client;
  readonly #askAll: () => Promise<void>;
  readonly #options: FrozenHolderOptions;
  #holder: Holder | null = null;
  #quietMs = Infinity;
  /** How long the question has been unanswered. Null if no question is open. */
  #askedMs: number | null = null;
  #isRefusalLogged = false;
  #named: string | null = null;

  constructor(client: Client, askAll: () => Promise<void>, options: FrozenHolderOptions) {
    this.#client = client;
    this.#askAll = askAll;
    this.#options = options;
  }

  answered(pid: number): void {
    if (pid !== this.#holder?.pid) return;
    this.#askedMs = null;
    this.#quietMs = 0;
    this.#isRefusalLogged = false;
  }

  /** Called after each failed attempt to take the lock, with the time since the last one. */
  async check(ms: number): Promise<void> {
    const frozenMs = this.#options.frozenMs();
    if (this.#askedMs === null || frozenMs === 0) {
      this.#quietMs += ms;
      if (this.#quietMs >= (frozenMs === 0 ? maxAskMs : Math.min(frozenMs / 3, maxAskMs))) await this.#look(frozenMs);
      return;
    }
    this.#askedMs += ms;
    if (this.#askedMs >= frozenMs) await this.#judge(frozenMs);
  }

  async #look(frozenMs: number): Promise<void> {
    const holder = await this.find();
    this.#holder = holder;
    if (holder === null) return;
    if (!holder.isPgTask && !holder.isTrusted) {
      this.#quietMs = 0;
      await this.#endForeign(holder);
      return;
    }
    if (!holder.isPgTask || !holder.isTrusted) this.#nameForeign(holder);
    if (frozenMs === 0) {
      this.#quietMs = 0;
      return;
    }
    this.#askedMs = 0;
    await this.#askAll();
  }

  async #endForeign(holder: Holder): Promise<void> {
    const { log, lines, fields } = this.#options;
    try {
      // The holder is looked up again, because the start time of its backend may be hidden and its pid be reused.
      const { rows } = await this.#client.query<{ ended: boolean }>(
        `SELECT pg_catalog.pg_terminate_backend(h.pid) AS ended FROM (${this.#findSql()}) AS h
         WHERE h.pid = $2 AND NOT h."isPgTask" AND NOT h."isTrusted"`,
        [this.#options.lock.class, holder.pid],
      );
      if (rows[0]?.ended === true) log.warn({ ...fields, ...shown(holder) }, lines.foreignEnded);
    } catch (error) {
      if (sqlState(error) !== insufficientPrivilege) throw error;
      this.#nameForeign(holder);
    }
  }

  #nameForeign(holder: Holder): void {
    const { log, lines, fields } = this.#options;
    const named = `${holder.pid} ${holder.owner}`;
    if (named === this.#named) return;
    this.#named = named;
    log.warn({ ...fields, ...shown(holder), remedy: foreignHolderRemedy(holder.pid) }, lines.foreign);
  }

  async #judge(frozenMs: number): Promise<void> {
    const asked = this.#holder;
    const now = await this.find();
    if (now === null || asked === null || now.pid !== asked.pid || now.owner !== asked.owner) {
      // Another process has the lock by now. It has not been asked yet.
      this.#askedMs = null;
      this.#quietMs = Infinity;
      return;
    }
    // The answer may have arrived while the server was asked.
    if (this.#askedMs === null) return;
    this.#askedMs = Math.max(0, frozenMs - lookAgainMs);
    if (!now.works) await this.#terminate(now, frozenMs);
  }

  async #terminate({ pid, owner, address }: Holder, frozenMs: number): Promise<void> {
    const { log, lines, fields, ended } = this.#options;
    const shown = { ...fields, pid, address, frozenMs };
    try {
      const { rows } = await this.#client.query<{ ended: boolean }>(
        `SELECT pg_catalog.pg_terminate_backend(a.pid) AS ended FROM pg_catalog.pg_stat_activity AS a
         WHERE a.pid = $1 AND ${isOwnerSql("a", "$2")}`,
        [pid, owner],
      );
      if (rows[0]?.ended !== true) return;
      log.warn(shown, lines.ended);
      this.#askedMs = null;
      ended();
    } catch (error) {
      if (sqlState(error) !== insufficientPrivilege) throw error;
      if (this.#isRefusalLogged) return;
      this.#isRefusalLogged = true;
      const remedy = "end its process, or GRANT pg_signal_backend TO this role";
      log.error({ ...shown, remedy }, lines.refused);
    }
  }

  async find(): Promise<Holder | null> {
    const { rows } = await this.#client.query<Holder>(this.#findSql(), [this.#options.lock.class]);
    return rows[0] ?? null;
  }

  #findSql(): string {
    const { lock, isPgTaskSql } = this.#options;
    // For the backend of another role, pg_stat_activity shows neither state nor start time. Such a backend may be
    // working, but then this role cannot terminate it either, unless it may signal other roles' backends.
    return `SELECT l.pid, a.application_name AS name, a.usename AS user, ${isPgTaskSql("a.application_name")} AS "isPgTask",
         ${isTrustedSql("a")} AS "isTrusted", host(a.client_addr) AS address, ${ownerSql("a")} AS owner,
         coalesce(a.state <> 'idle' AND a.wait_event_type IS DISTINCT FROM 'Client', false) AS works
       FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
       WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = $1::bigint::oid
         AND l.objid = ((${lock.key})::bigint & 4294967295)::oid
         AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())`;
  }
}

const shown = ({ pid, user, name, address }: Holder): object => ({
  backend: pid,
  role: user,
  application: name,
  address,
});

export const foreignHolderRemedy = (pid: number): string =>
  `if it is a pg-task of yours, connect as its role; otherwise let only roles that you trust connect to the database: REVOKE CONNECT ON DATABASE … FROM PUBLIC; and end it: SELECT pg_terminate_backend(${pid})`;
