import type { Client } from "../../shared/postgres/client.js";
import { beginBusy, endBusy, writers } from "./busyLock.sql.js";

/** When it goes from one to the other. */
export interface WakeUpLimits {
  /** So many wake-ups within 100 ms, and it is cheaper for everybody that it looks by itself. */
  readonly wakeUps: number;
  /** How long it finds nothing before it wants to be told again, in ms: longer if it is soon busy again. */
  readonly shortestQuietMs: number;
  readonly longestQuietMs: number;
}

const usual: WakeUpLimits = { wakeUps: 20, shortestQuietMs: 50, longestQuietMs: 2_000 };
const manyWithinMs = 100;
const soonMs = 1_000;
/** How often it looks while busy: at first, and when it finds nothing again and again, in ms. */
const shortestLookMs = 2;
const longestLookMs = 50;
/** With every session taken, a new task need not be seen before one of them is free. */
const fullLookMs = 200;
/** How often it looks for what writers that were not asked to tell may still commit, in ms. */
const longestSettleMs = 200;

/**
 * Whether the manager is told of changes, or looks by itself: NOTIFY makes its senders commit one
 * after another, so they leave it while the manager is busy.
 *
 *   settling ──those have ended──▶ last look ──▶ told ──many wake-ups──▶ busy
 *     ▲  └────────────────────────many wake-ups────────────────────────▶ │
 *     └──────────────────────quiet: lets its lock go─────────────────────┘
 *
 * No wake-up is lost: whoever found it busy wrote to the table before that and holds a lock on it
 * until its rows can be seen. After it has let go it finds those, looks at the table until they have
 * ended, and then once more. It begins like that: whom the manager before it spared, nobody knows.
 */
export class WakeUps {
  readonly #client: Client;
  readonly #tableOid: number;
  #state: "settling" | "last look" | "told" | "busy" = "settling";
  /** Transactions that may not tell; null when it has to be found out which. */
  #untold: ReadonlySet<string> | null = null;
  /** When the last ones came, oldest first. */
  readonly #heard: number[] = [];
  #lookMs = 0;
  #foundAt = 0;
  readonly #limits: WakeUpLimits;
  #quietMs: number;
  #endedAt = -Infinity;

  constructor(client: Client, tableOid: number, limits = usual) {
    this.#client = client;
    this.#tableOid = tableOid;
    this.#limits = limits;
    this.#quietMs = limits.shortestQuietMs;
  }

  /** Somebody has told of a change. */
  hear(): void {
    this.#heard.push(performance.now());
    if (this.#heard.length > this.#limits.wakeUps) this.#heard.shift();
  }

  /** Whether every change from now on is told. */
  get told(): boolean {
    return this.#state === "told";
  }

  /** When the next turn has to look at the latest, in ms. */
  get pauseMs(): number {
    return this.told ? Infinity : this.#lookMs;
  }

  /** It looks no more: whoever writes has to tell somebody else. */
  async leave(): Promise<void> {
    if (this.#state === "busy") await endBusy(this.#client, this.#tableOid);
    this.#state = "settling";
  }

  /**
   * To be called after each turn.
   *
   * @param found whether it had something to do.
   * @param full whether nothing more could be started.
   * @param putOff whether it could not look at everything.
   * @returns whether the next turn must not wait.
   */
  async after(turn: { found: boolean; full: boolean; putOff: boolean }): Promise<boolean> {
    if (this.#state === "busy") return await this.#afterBusyTurn(turn.found, turn.full);
    if (this.#crowded() && (await this.#beginBusy())) return false;
    if (this.#state === "settling") return await this.#settle();
    if (this.#state === "last look" && !turn.putOff) this.#state = "told";
    return false;
  }

  #crowded(): boolean {
    const [first = -Infinity] = this.#heard;
    return this.#heard.length === this.#limits.wakeUps && performance.now() - first < manyWithinMs;
  }

  async #beginBusy(): Promise<boolean> {
    if (!(await beginBusy(this.#client, this.#tableOid))) return false;
    const now = performance.now();
    const soon = now - this.#endedAt < soonMs;
    const { shortestQuietMs, longestQuietMs } = this.#limits;
    this.#quietMs = soon ? Math.min(this.#quietMs * 2, longestQuietMs) : shortestQuietMs;
    this.#state = "busy";
    this.#heard.length = 0;
    this.#foundAt = now;
    this.#lookMs = shortestLookMs;
    return true;
  }

  async #afterBusyTurn(found: boolean, full: boolean): Promise<boolean> {
    const now = performance.now();
    if (found || full) {
      this.#foundAt = now;
      this.#lookMs = full ? fullLookMs : shortestLookMs;
      return false;
    }
    if (now - this.#foundAt < this.#quietMs) {
      this.#lookMs = Math.min(this.#lookMs * 1.5, longestLookMs);
      return false;
    }
    await endBusy(this.#client, this.#tableOid);
    this.#endedAt = now;
    this.#state = "settling";
    this.#untold = null;
    this.#lookMs = shortestLookMs;
    return await this.#settle();
  }

  /** One that was prepared meanwhile has another name: each prepared one may be it. */
  async #settle(): Promise<boolean> {
    const known = this.#untold;
    const untold = (await writers(this.#client, this.#tableOid)).filter(
      ({ transaction, prepared }) => prepared || known === null || known.has(transaction),
    );
    this.#untold = new Set(untold.map(({ transaction }) => transaction));
    this.#lookMs = Math.min(this.#lookMs * 1.5 + 1, longestSettleMs);
    if (untold.length > 0) return false;
    this.#state = "last look";
    return true;
  }
}
