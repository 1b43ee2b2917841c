import { sleep } from "../backoff.js";
import { backendPid, connectClient, disconnect, serverOf, type Client } from "./client.js";
import { PgTaskError } from "../errors.js";
import { ownerSql } from "./backendIdentity.js";
import { timeoutSignal } from "../timeoutSignal.js";

/** How often, and every how many ms, the watchdog looks for the answer to a probe before it asks the server. */
const answerChecks = { count: 2, everyMs: 50 };
/**
 * Samples of the backend's activity. Only a backend that is idle in all of them counts. Together with the answer
 * checks, they take long enough for a lost packet to be sent again.
 */
const samples = 5;
const sampleMs = 70;
const inquiryPauseMs = { first: 1_000, longest: 8_000 };
const inquiryConnectMs = 5_000;
/** The connection of an inquiry can go silent as well. An open one would keep a process that stops from ending. */
const inquiryAnswerMs = 5_000;

/**
 * Detects half-open connections, on which nothing ever arrives, and ends them. After a silence, it sends a probe query.
 * Without an answer, it asks the server over a second connection what the backend is doing. A backend that works is left
 * alone. One that is idle is terminated, because it still holds pg-task's locks.
 *
 *     quiet ──silence──▶ probed ──no answer──▶ inquiring ──backend idle or gone──▶ connection ended
 *       ▲                 │  ▲                     │ │
 *       └──data arrived───┤  └──working: a pause───┘ │
 *                         └───────data arrived───────┘
 */
export class ConnectionWatchdog {
  readonly #client: Client;
  readonly #name: string;
  readonly #quietMs: number;
  readonly #restMs: () => number | null;
  #timer: NodeJS.Timeout;
  #heardAt = performance.now();
  #probes = 0;
  #heard = true;
  #checks = 0;
  /** Whether the loss of the connection may be noticed late at present. */
  #resting = false;
  #inquiring = false;
  #inquiredAt = -Infinity;
  #pauseMs = inquiryPauseMs.first;
  #stopped = false;

  /**
   * @param options.name application name of the second connection
   * @param options.restMs returns the longer silence that is allowed while the loss of the connection may be noticed late
   */
  constructor(
    client: Client,
    options: { readonly name: string; readonly quietMs: number; readonly restMs?: () => number | null },
  ) {
    this.#client = client;
    this.#name = options.name;
    this.#quietMs = options.quietMs;
    this.#restMs = options.restMs ?? (() => null);
    this.#timer = this.#after(this.#quietMs, () => this.#probeIfSilent());
    client.connection.stream.on("data", this.#hear);
    client.once("end", this.stop);
  }

  readonly stop = (): void => {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#client.connection.stream.off("data", this.#hear);
    this.#client.off("end", this.stop);
  };

  probeNow(): void {
    if (this.#stopped || !this.#heard) return;
    clearTimeout(this.#timer);
    this.#probe();
  }

  /** Something is about to be sent: ends a long silence. */
  expectAnswer(): void {
    if (this.#stopped || !this.#resting) return;
    clearTimeout(this.#timer);
    this.#timer = this.#after(this.#quietMs, () => this.#probe());
  }

  #after(ms: number, then: () => void): NodeJS.Timeout {
    return setTimeout(then, ms).unref();
  }

  readonly #hear = (): void => {
    this.#heardAt = performance.now();
    if (this.#heard && !this.#resting) return;
    this.#heard = true;
    clearTimeout(this.#timer);
    this.#timer = this.#after(this.#allowedSilence(), () => this.#probeIfSilent());
  };

  #allowedSilence(): number {
    const restMs = this.#restMs();
    this.#resting = restMs !== null;
    return restMs ?? this.#quietMs;
  }

  #probeIfSilent(): void {
    const leftMs = this.#heardAt + this.#allowedSilence() - performance.now();
    if (leftMs > 0) this.#timer = this.#after(Math.ceil(leftMs), () => this.#probeIfSilent());
    else this.#probe();
  }

  #probe(): void {
    this.#resting = false;
    this.#checks = 0;
    this.#probes += 1;
    this.#heard = false;
    this.#pauseMs = inquiryPauseMs.first;
    this.#client.query("SELECT").catch(() => {});
    this.#timer = this.#after(answerChecks.everyMs, () => this.#checkAnswer());
  }

  #checkAnswer(): void {
    this.#checks += 1;
    const late = this.#checks >= answerChecks.count;
    if (late) void this.#inquire();
    this.#timer = this.#after(late ? this.#quietMs : answerChecks.everyMs, () => this.#checkAnswer());
  }

  async #inquire(): Promise<void> {
    if (this.#inquiring || performance.now() - this.#inquiredAt < this.#pauseMs) return;
    this.#inquiring = true;
    const probes = this.#probes;
    const settled = (): boolean => this.#stopped || this.#heard || this.#probes !== probes;
    const works = await this.#works(settled).catch((error: unknown) => !isUnreachable(error));
    this.#inquiring = false;
    this.#inquiredAt = performance.now();
    this.#pauseMs = Math.min(2 * this.#pauseMs, inquiryPauseMs.longest);
    if (!works && !settled()) this.#client.connection.stream.destroy();
  }

  /**
   * Asks the server whether the backend is working, and terminates it if not. `settled` says whether the question has
   * become obsolete. Returns false if the backend is gone.
   */
  async #works(settled: () => boolean): Promise<boolean> {
    const client = await connectClient(
      { ...serverOf(this.#client), connectTimeoutMs: inquiryConnectMs },
      { applicationName: this.#name, signal: timeoutSignal(inquiryConnectMs) },
    );
    const timer = setTimeout(() => client.connection.stream.destroy(), inquiryAnswerMs);
    try {
      const pid = backendPid(this.#client);
      let before: Activity | null = null;
      for (let question = 0; question < samples; question += 1) {
        const { rows } = await client.query<Activity>(
          `SELECT state IS DISTINCT FROM 'idle' AND wait_event_type IS DISTINCT FROM 'Client' AS works,
             ${ownerSql("a")} AS owner, state_change::text AS since
           FROM pg_catalog.pg_stat_activity AS a WHERE pid = $1`,
          [pid],
        );
        const [now] = rows;
        if (now === undefined) return false;
        // If data has arrived in the meantime, the backend may be idle because it has sent its complete answer.
        if (now.works || settled()) return true;
        if (before !== null && before.since !== now.since) return true;
        before = now;
        await sleep(sampleMs);
      }
      if (settled()) return true;
      await client.query(
        `SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity AS a
         WHERE pid = $1 AND ${ownerSql("a")} = $2`,
        [pid, before?.owner],
      );
      return false;
    } finally {
      clearTimeout(timer);
      await disconnect(client);
    }
  }
}

interface Activity {
  readonly works: boolean;
  readonly owner: string | null;
  readonly since: string | null;
}

/** A server that refuses the second connection is reachable. */
const isUnreachable = (error: unknown): boolean => error instanceof PgTaskError && error.code === "CONNECTION_FAILED";
