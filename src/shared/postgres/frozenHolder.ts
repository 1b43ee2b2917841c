import type { Log } from "../log.js";
import { isOwnerSql, ownerSql } from "./backendIdentity.js";
import { sqlState, type Client } from "./client.js";
import { insufficientPrivilege } from "./sqlStates.js";

/** The longest time between two questions to a holder that answers, in ms. */
const maxAskMs = 10_000;
/** While a holder does not answer because its backend is working, it is looked at this often, in ms. */
const lookAgainMs = 1_000;

/** The backend that holds the lock. */
export interface Holder {
  readonly pid: number;
  readonly name: string;
  readonly address: string | null;
  /** Identity of the backend. Null if this role must not see it. */
  readonly owner: string | null;
  /** Whether the backend is working, as far as this role can see. It then passes the question on later. */
  readonly works: boolean;
}

interface FrozenHolderOptions {
  /** Both keys of the advisory lock. The second is an SQL expression for an integer. */
  readonly lock: { readonly class: number; readonly key: string };
  /** How long the holder may go without an answer, in ms. 0 means forever. */
  readonly frozenMs: () => number;
  /** The log lines for a holder whose connection was ended, and for one that this role may not end. */
  readonly lines: { readonly ended: string; readonly refused: string };
  readonly fields: Readonly<Record<string, unknown>>;
  /** Called when the holder's backend has been terminated. */
  readonly ended: () => void;
  readonly log: Log;
}

/**
 * Ends the connection of a frozen process that holds a lock. A process is frozen if it does not answer although the
 * server has passed the question on to it: it was suspended (SIGSTOP, `docker pause`, a debugger), and its kernel keeps
 * its connections open.
 *
 *     quiet ──a while without an answer──▶ asked ──not answered, backend idle──▶ terminated
 *       ▲                                    │  ▲                │
 *       └──────────────answered──────────────┘  └─backend works──┘
 *
 * Time is counted in calls of `check`. If this process itself is suspended, there are none, and so the holder is not
 * taken for frozen after that.
 */
export class FrozenHolder {
  readonly #client: Client;
  readonly #askAll: () => Promise<void>;
  readonly #options: FrozenHolderOptions;
  #holder: Holder | null = null;
  #quietMs = Infinity;
  /** How long the question has been unanswered, in ms. Null if no question is open. */
  #askedMs: number | null = null;
  #isRefusalLogged = false;

  /** @param askAll asks all processes, and so also the holder */
  constructor(client: Client, askAll: () => Promise<void>, options: FrozenHolderOptions) {
    this.#client = client;
    this.#askAll = askAll;
    this.#options = options;
  }

  /** Notes that the process of this backend has answered. */
  answered(pid: number): void {
    if (pid !== this.#holder?.pid) return;
    this.#askedMs = null;
    this.#quietMs = 0;
    this.#isRefusalLogged = false;
  }

  /** Called after each failed attempt to take the lock, with the time since the last one in ms. */
  async check(ms: number): Promise<void> {
    const frozenMs = this.#options.frozenMs();
    if (frozenMs === 0) return;
    if (this.#askedMs === null) {
      this.#quietMs += ms;
      if (this.#quietMs >= Math.min(frozenMs / 3, maxAskMs)) await this.#ask();
      return;
    }
    this.#askedMs += ms;
    if (this.#askedMs >= frozenMs) await this.#judge(frozenMs);
  }

  async #ask(): Promise<void> {
    this.#holder = await this.find();
    if (this.#holder === null) return;
    this.#askedMs = 0;
    await this.#askAll();
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

  /** Returns the backend that holds the lock now, or null if none does. */
  async find(): Promise<Holder | null> {
    const { lock } = this.#options;
    // For the backend of another role, pg_stat_activity shows neither state nor start time. Such a backend may be
    // working, but then this role cannot terminate it either, unless it may signal other roles' backends.
    const { rows } = await this.#client.query<Holder>(
      `SELECT l.pid, a.application_name AS name, host(a.client_addr) AS address, ${ownerSql("a")} AS owner,
         coalesce(a.state <> 'idle' AND a.wait_event_type IS DISTINCT FROM 'Client', false) AS works
       FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
       WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = $1::bigint::oid
         AND l.objid = ((${lock.key})::bigint & 4294967295)::oid
         AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())`,
      [lock.class],
    );
    return rows[0] ?? null;
  }
}
