import { PgTaskError } from "../../shared/errors.js";
import { Pipeline } from "../session/pipeline.js";
import type { Execution, RunOutcome } from "../run/execution.js";
import type { RemoteConnection } from "./connectRemote.js";
import type { ManagerServer } from "./managerServerLimit.js";
import type { RemoteTarget } from "./remoteTarget.js";

/** How long a server may take to say that a session that was kept is still there, in ms. */
const answerMs = 5_000;

/** A session on another server: it runs one task at a time, and may be kept for the next. */
export class RemoteSession {
  readonly target: RemoteTarget;
  readonly connection: RemoteConnection;
  /** What it was opened by, and its server is asked by. */
  readonly ownServer: ManagerServer;
  readonly #lane: Pipeline;
  #settle: { out: (outcome: RunOutcome) => void; lose: (reason: PgTaskError) => void } | null =
    null;
  #lost: PgTaskError | null = null;
  /** Whether the last run has left its state to the next. */
  #saved = false;

  constructor(target: RemoteTarget, connection: RemoteConnection, ownServer: ManagerServer) {
    this.ownServer = ownServer;
    this.target = target;
    this.connection = connection;
    const { wire } = connection;
    const lane = new Pipeline(wire, {
      out: (_, outcome) => this.#settle?.out(outcome),
      lost() {},
      again: (it) => lane.send(it, null),
      begun() {},
      changed() {},
    });
    this.#lane = lane;
    void wire.ended.then((reason) => this.#lose(reason));
  }

  /** @throws PgTaskError CONNECTION_LOST when it is not known how the run came out */
  async run(execution: Execution): Promise<RunOutcome> {
    if (this.#lost !== null) throw this.#lost;
    this.#saved = execution.needs.save;
    try {
      return await new Promise((out, lose) => {
        this.#settle = { out, lose };
        this.#lane.send(execution, null);
      });
    } finally {
      // What came out is held by nobody here.
      this.#settle = null;
    }
  }

  /** Whether it is as it was left, and ready for the next run; if not, it is closed. */
  async isUsable(signal: AbortSignal): Promise<boolean> {
    const { wire } = this.connection;
    const limited = AbortSignal.any([signal, AbortSignal.timeout(answerMs)]);
    const end = (): void => wire.destroy(unanswered);
    limited.addEventListener("abort", end, { once: true });
    try {
      if (await this.connection.renew(this.#saved)) return true;
      await wire.close();
      return false;
    } finally {
      limited.removeEventListener("abort", end);
    }
  }

  async close(): Promise<void> {
    await this.connection.wire.close();
  }

  async #lose(reason: PgTaskError): Promise<void> {
    this.#lost = reason;
    await this.#lane.lose(reason);
    this.#settle?.lose(reason);
  }
}

const unanswered = new PgTaskError(
  "CONNECTION_LOST",
  "the session was given up: it does not say that it is still there",
);

/** For whom a session is kept. */
interface Keeping {
  readonly remote: string;
  readonly group: string;
  readonly session: RemoteSession;
}

/** The session on another server that a session here keeps for the next task of the same group and string. */
export class RemoteSessionCache {
  #kept: Keeping | null = null;

  keep(kept: Keeping): void {
    this.#kept = kept;
  }

  /** The one for these, which is kept no longer; null when there is none. Any other is ended. */
  async take({ remote, group }: Omit<Keeping, "session">): Promise<RemoteSession | null> {
    const kept = this.#kept;
    if (kept !== null && kept.remote === remote && kept.group === group) {
      this.#kept = null;
      return kept.session;
    }
    await this.end();
    return null;
  }

  /** Ends what is kept. */
  async end(): Promise<void> {
    const kept = this.#kept;
    this.#kept = null;
    await kept?.session.close();
  }
}
